"""How several processes share what one of them would hold. Only `ddp` is what ftui runs; the others answer "what if".

ZeRO (Rajbhandari et al., arXiv 1910.02054, section 5): stage 1 divides the moments, stage 2 the gradients too, stage 3
the weights too. FSDP (Zhao et al., arXiv 2304.11277) divides all three and gathers one layer while the next comes.
"""

from dataclasses import dataclass

from ftui.estimate.setup import Setup
from ftui.hardware.devices import MiB

BUCKET_BYTES = 64 * MiB
"""engine/distributed/process_group.py: gradients that are summed in one piece, in a flat tensor."""


@dataclass(frozen=True)
class Share:
    """What one process holds, in bytes. `gathered`: weights made whole for the layer at hand; room for sums."""

    weights: int
    gradients: int
    moments: int
    gathered: int


def shared(setup: Setup, weights: int, gradients: int, moments: int, largest_layer: int) -> Share:
    """The share of one process."""
    number = setup.num_processes
    if number == 1:
        return Share(weights, gradients, moments, 0)
    bucket = min(gradients, BUCKET_BYTES)
    match setup.parallel:
        case "ddp":
            return Share(weights, gradients, moments, bucket)
        case "zero1":
            return Share(weights, gradients, moments // number, bucket)
        case "zero2":
            return Share(weights, gradients // number, moments // number, bucket)
        case "zero3" | "fsdp":
            return Share(weights // number, gradients // number, moments // number, 2 * largest_layer)
