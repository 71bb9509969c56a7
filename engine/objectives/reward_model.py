"""Reward models: a score for a whole text, higher for the chosen answer of a pair than for the rejected one."""

from torch import nn

from ftui.profile.schema import Profile

from . import Loss, Objective
from .loss import Batch
from .reward_losses import centring_loss, reward_loss, reward_metrics, sequence_scores


def stage(profile: Profile) -> Objective:
    """The objective `rm`: a mean over the pairs of a step; with `center_rewards_coefficient`, scores stay around 0."""
    coefficient = profile.preference.center_rewards_coefficient

    def loss(model: nn.Module, batch: Batch) -> Loss:
        scores = sequence_scores(model, batch)
        chosen, rejected = scores[::2], scores[1::2]
        losses = reward_loss(chosen, rejected, batch.margins)
        if coefficient:
            losses = losses + coefficient * centring_loss(chosen, rejected)
        return Loss({"examples": losses.sum()}, reward_metrics(chosen, rejected), {"examples": losses.detach()})

    return Objective("rm", loss, per="examples")
