"""`python -P -m ftui.engine.system.compare_copies [DEVICE ...]`: does what one GPU copies to another arrive as it was?

On some machines the driver offers direct copies between cards (P2P) that arrive changed, without an error. NCCL would
use them. Prints one line of JSON: {"compared": pairs, "wrong": [[from, to], ...]}.
"""

import json
import sys
from collections.abc import Callable, Sequence
from itertools import permutations

import torch
from torch import Tensor

NUM_BYTES = 16 << 20
ROUNDS = 2  # what one round leaves in a card's memory must not be what the next one asks for


def compare_copies(
    devices: Sequence[torch.device], copy: Callable[[Tensor, torch.device], Tensor] = Tensor.to, *,
    num_bytes: int = NUM_BYTES,
) -> tuple[int, list[tuple[int, int]]]:  # fmt: skip
    """How many ordered pairs of devices copy directly, and those of them whose copies arrive changed."""
    pairs = [pair for pair in permutations(range(len(devices)), 2) if _copies_directly(*(devices[i] for i in pair))]
    wrong = set()
    generator = torch.Generator().manual_seed(0)
    for _ in range(ROUNDS):
        for source, target in pairs:
            data = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=generator)
            arrived = copy(data.to(devices[source]), devices[target])
            if not torch.equal(arrived.cpu(), data):
                wrong.add((source, target))
    return len(pairs), sorted(wrong)


def _copies_directly(source: torch.device, target: torch.device) -> bool:
    """Others go through the host's memory, in NCCL as here."""
    return source.type != "cuda" or torch.cuda.can_device_access_peer(source.index, target.index)


def main(names: Sequence[str]) -> None:
    """Compare the copies between the devices of these names, or between all GPUs that this process sees."""
    names = names or [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    compared, wrong = compare_copies([torch.device(name) for name in names])
    print(json.dumps({"compared": compared, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1:])
