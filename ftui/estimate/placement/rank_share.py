"""What one of several processes has of gradients and optimizer moments, and of the weights where all are trained.

`ddp` is ftui's own way, with `hardware.shard` (a frozen base: frozen_base.py) and without; the others answer "what if":
ZeRO (Rajbhandari et al., arXiv 1910.02054, section 5) divides the moments in stage 1, the gradients too in stage 2, the
weights too in stage 3. FSDP (Zhao et al., arXiv 2304.11277) divides all three and gathers one layer while the next
comes.
"""

from dataclasses import dataclass

from ftui.estimate.placement.frozen_base import BACKWARD_COPIES
from ftui.estimate.setup import TrainingSetup
from ftui.hardware.devices import MiB

BUCKET_BYTES = 64 * MiB
"""engine/distributed/process_group.py: gradients that are summed in one piece, in a flat tensor."""


WHOLE_GRADIENTS = 2
"""Layers whose gradients are whole where they are divided: as they are made, and as they are sent."""


@dataclass(frozen=True)
class RankShare:
    """What one process holds, in bytes. `gathered`: weights made whole for the layer at hand; room for sums."""

    weights: int
    gradients: int
    moments: int
    gathered: int


def share_between_ranks(
    setup: TrainingSetup, weights: int, gradients: int, moments: int, largest_layer: int
) -> RankShare:
    """The share of one process."""
    number = setup.num_processes
    if number == 1:
        return RankShare(weights, gradients, moments, 0)
    bucket = min(gradients, BUCKET_BYTES)
    if setup.parallel == "ddp" and setup.method == "full" and setup.shard != "none":
        whole = weights if setup.shard == "state" else BACKWARD_COPIES * largest_layer
        number = setup.num_sharing
        own = weights // number, gradients // number, moments // number
        return RankShare(*own, whole + WHOLE_GRADIENTS * largest_layer)
    match setup.parallel:
        case "ddp":
            return RankShare(weights, gradients, moments, bucket)
        case "zero1":
            return RankShare(weights, gradients, moments // number, bucket)
        case "zero2":
            return RankShare(weights, gradients // number, moments // number, bucket)
        case "zero3" | "fsdp":
            return RankShare(weights // number, gradients // number, moments // number, 2 * largest_layer)
