"""A whole step of GRPO beside TRL's, in CPU seconds: `python -m tests.bench.sampling [ROUNDS]`, from the top folder.

SmolLM2-135M-Instruct in float32 on one thread, LoRA, a group of 8 answers of 64 tokens to a question of about 90, no
gradient checkpointing. Each training is a process of its own, ftui's and TRL's in turn; then generation alone.
"""

import json
import subprocess
import sys
from statistics import median
from typing import Any

from tests.bench.sampling.setting import model_folder


def ask(module: str, model: str) -> dict[str, Any]:
    """What `module` measures, in a process of its own."""
    command = [sys.executable, "-m", f"tests.bench.sampling.{module}", model]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(rounds: int) -> None:
    model = model_folder()
    seconds: dict[str, list[float]] = {"with_ftui": [], "with_trl": []}
    for _ in range(rounds):
        for module, own in seconds.items():
            found = ask(module, model)
            own += found["seconds"]
            print(module, found, flush=True)
    ours, theirs = median(seconds["with_ftui"]), median(seconds["with_trl"])
    print(f"a step: ftui {ours:.1f} s, TRL {theirs:.1f} s of CPU time: {theirs / ours:.2f}x")
    print("generation", ask("generation", model))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
