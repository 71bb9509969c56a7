"""Supervised fine-tuning: the answers are learned, each target token with the same weight."""

from torch import nn

from . import Loss, Stage
from .loss import Batch, summed_loss


def stage(label_smoothing: float) -> Stage:
    def loss(model: nn.Module, batch: Batch) -> Loss:
        return summed_loss(model, batch, label_smoothing), len(batch.target_ids), {}

    return Stage("sft", loss)
