"""Supervised fine-tuning: the model trains on the answers, each target token with the same weight."""

from torch import nn

from . import Loss, Objective
from .loss import Batch, summed_loss


def stage(label_smoothing: float) -> Objective:
    """The objective `sft`. `label_smoothing`: share (0..1) of the probability spread over the vocabulary."""

    def loss(model: nn.Module, batch: Batch) -> Loss:
        return summed_loss(model, batch, label_smoothing), len(batch.target_ids), {}

    return Objective("sft", loss)
