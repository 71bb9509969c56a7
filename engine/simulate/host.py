"""What an engine's process takes before it has a model, on this machine: measured once, in a process of its own.

`python -P -m ftui.engine.simulate.host` imports what an engine imports and prints its resident memory after one
step of a model of no size.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from ftui.estimate.closed_form import ENGINE_BYTES
from ftui.system.files import replace_file

from ..system.environment import settle_environment, versions
from ..system.libraries import import_libraries, quick_imports

PATIENCE_SECONDS = 120.0


def resident_bytes(folder: Path, num_threads: int) -> int:
    """Resident memory of an engine with its libraries, measured once for these versions and kept in `folder`.

    `ENGINE_BYTES` where it cannot be measured.
    """
    note = folder / "host.json"
    key = json.dumps([versions(), sys.executable, num_threads], sort_keys=True)
    try:
        sizes = json.loads(note.read_bytes())
    except (OSError, ValueError):
        sizes = {}
    if key in sizes:
        return int(sizes[key])
    size = _measure(num_threads)
    if size is None:
        return ENGINE_BYTES
    replace_file(note, msgspec.json.encode({key: size}))
    return size


@functools.cache
def _measure(num_threads: int) -> int | None:
    command = [sys.executable, "-P", "-m", __name__, str(num_threads)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return None
    return int(answer.split()[-1])


def main(arguments: list[str]) -> int:
    settle_environment()
    with quick_imports():
        import_libraries()
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        from .. import recipe  # noqa: F401  all that an engine imports
        from ..system.memory import used_bytes

    torch.set_num_threads(int(arguments[0]))
    shape: dict[str, Any] = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model: Any = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.zeros(1, 8, dtype=torch.int64)
    model(input_ids=ids, labels=ids).loss.backward()  # what a first step loads and sets up
    optimizer.step()
    print(used_bytes(torch.device("cpu")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
