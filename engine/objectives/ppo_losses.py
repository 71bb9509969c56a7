"""Losses of proximal policy optimisation (Schulman et al. 2017), by token. Formulas and names are TRL's (1.12)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class PpoSettings:
    """Numbers of the losses, as in `[ppo]` of the profile."""

    cliprange: float = 0.2
    vf_coef: float = 0.1
    cliprange_value: float = 0.2


class SampledTokens(NamedTuple):
    """Of each token of the answers of a micro-batch, (targets,) float32.

    Attributes:
        log_probs: under the model that is trained.
        values: what its value head says before the token.
        old: log-probabilities under the model that gave the answers.
        old_values: what the value head said at that time.
        returns: what the values should have been.
        advantages: how much better the token is than the value before it.
    """

    log_probs: Tensor
    values: Tensor
    old: Tensor
    old_values: Tensor
    returns: Tensor
    advantages: Tensor


def policy_losses(facts: SampledTokens, cliprange: float) -> Tensor:
    """(targets,) -min(rho A, clip(rho) A), rho how much likelier a token has become."""
    rho = (facts.log_probs - facts.old).exp()
    return torch.max(-facts.advantages * rho, -facts.advantages * rho.clamp(1 - cliprange, 1 + cliprange))


def value_losses(facts: SampledTokens, cliprange_value: float) -> Tensor:
    """(targets,) half the squared distance from the return, of the value or of what is left of it within
    `cliprange_value` of the old one: the larger."""
    near = _near_old(facts, cliprange_value)
    return 0.5 * torch.max((facts.values - facts.returns) ** 2, (near - facts.returns) ** 2)


def _near_old(facts: SampledTokens, cliprange_value: float) -> Tensor:
    return facts.values.clamp(facts.old_values - cliprange_value, facts.old_values + cliprange_value)


def ppo_loss(facts: SampledTokens, settings: PpoSettings) -> Tensor:
    """The sum over the targets (float32 scalar): of a step it is divided by their number."""
    values = value_losses(facts, settings.cliprange_value)
    return (policy_losses(facts, settings.cliprange) + settings.vf_coef * values).sum()


@torch.no_grad()
def ppo_metrics(facts: SampledTokens, settings: PpoSettings) -> dict[str, Tensor]:
    """Sums over the targets, by TRL's names: the two losses, the shares that clipping has changed, the ratio, and an
    estimate of how far the model has moved since it gave the answers."""
    moved = facts.log_probs - facts.old
    rho, near = moved.exp(), _near_old(facts, settings.cliprange_value)
    policy, values = policy_losses(facts, settings.cliprange), value_losses(facts, settings.cliprange_value)
    is_clipped = policy > -facts.advantages * rho
    is_far = (near - facts.returns) ** 2 > (facts.values - facts.returns) ** 2
    return {
        "loss/policy_avg": policy.sum(),
        "loss/value_avg": values.sum(),
        "policy/clipfrac_avg": is_clipped.float().sum(),
        "policy/approxkl_avg": 0.5 * (moved**2).sum(),
        "val/clipfrac_avg": is_far.float().sum(),
        "val/ratio": rho.sum(),
    }
