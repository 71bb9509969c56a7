"""Supervised fine-tuning: the model trains on the answers, each target token with the same weight."""

from torch import nn

from ftui.profile.schema import Profile

from . import Loss, Objective
from .loss import Batch, cross_entropy


def stage(profile: Profile) -> Objective:
    """The objective `sft`; `train.label_smoothing_factor` spreads part of the probability over the vocabulary."""
    label_smoothing = profile.train.label_smoothing_factor

    def loss(model: nn.Module, batch: Batch) -> Loss:
        found = cross_entropy(model, batch, label_smoothing)
        metrics = {"mean_token_accuracy": found.num_right, "perplexity": found.nats}
        return Loss({"targets": found.loss}, metrics, {"targets": found.each})

    return Objective("sft", loss)
