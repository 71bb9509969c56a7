"""What one of several processes has of gradients and optimizer moments, and of the weights where all are trained.

`ddp` is ftui's own way, with `hardware.shard` and without; the others answer "what if": ZeRO (Rajbhandari et al.,
arXiv 1910.02054, section 5) divides the moments in stage 1, the gradients too in stage 2, the weights too in stage 3.
FSDP (Zhao et al., arXiv 2304.11277) divides all three and gathers one layer while the next comes.
"""

from dataclasses import dataclass

from ftui.estimate.setup import Parallel, TrainingSetup
from ftui.hardware.devices import MiB

BUCKET_BYTES = 64 * MiB
"""engine/distributed/process_group.py: gradients that are summed in one piece, in a flat tensor."""


OF_SHARD: dict[str, Parallel] = {"none": "ddp", "state": "zero2", "all": "fsdp"}
"""What `hardware.shard` comes to where all weights are trained."""


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
    way = setup.parallel
    if way == "ddp" and not setup.is_lora:  # a frozen base is divided by itself: frozen_base.py
        way = OF_SHARD[setup.shard]
    match way:
        case "ddp":
            return RankShare(weights, gradients, moments, bucket)
        case "zero1":
            return RankShare(weights, gradients, moments // number, bucket)
        case "zero2":
            return RankShare(weights, gradients // number, moments // number, bucket)
        case "zero3" | "fsdp":
            return RankShare(weights // number, gradients // number, moments // number, 2 * largest_layer)
