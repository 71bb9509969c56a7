"""Losses of single answers that were judged good or bad: KTO (Ethayarajh et al. 2024), and APO without pairs.

Formulas and names are TRL's (1.16). Its batch has a mean divergence of its own; ours is one of the whole step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor


class JudgedAnswers(NamedTuple):
    """Answers with a verdict, one entry each.

    Attributes:
        log_probs: (answers,) float32, summed log-probabilities under the model that is trained.
        reference: (answers,) float32, the same under the reference.
        is_good: (answers,) bool.
    """

    log_probs: Tensor
    reference: Tensor
    is_good: Tensor


@dataclass(frozen=True)
class VerdictSettings:
    """Numbers of the losses, as in `[preference]` of the profile."""

    beta: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0


def mean_divergence(log_ratios: Tensor, number: int) -> Tensor:
    """KTO's z0 (float32 scalar, no gradient): how far the model is from its reference on answers to other prompts.

    `log_ratios`: the sum over the whole step of the log-ratios of `number` mismatched answers. An estimate below 0 says
    nothing, and neither does a step without any.
    """
    return (log_ratios.detach().float() / max(1, number)).clamp(min=0)


def kto(answers: JudgedAnswers, z0: Tensor, settings: VerdictSettings) -> Tensor:
    """KTO (equation 7); z0 is `mean_divergence`."""
    away = settings.beta * (answers.log_probs - answers.reference - z0)
    return _weighted(answers, torch.sigmoid(-away), torch.sigmoid(away), settings)


def apo_zero_unpaired(answers: JudgedAnswers, z0: Tensor, settings: VerdictSettings) -> Tensor:
    """APO-zero (D'Oosterlinck et al. 2024, equation 7) of answers one by one; there is no z0 in it."""
    return kto(answers, torch.zeros_like(z0), settings)


VerdictLoss = Callable[[JudgedAnswers, Tensor, VerdictSettings], Tensor]

KTO_LOSSES: Mapping[str, VerdictLoss] = MappingProxyType({"kto": kto, "apo_zero_unpaired": apo_zero_unpaired})
"""Each gives one loss an answer: (answers,) float32."""


def verdict_metrics(answers: JudgedAnswers, settings: VerdictSettings) -> dict[str, Tensor]:
    """Sums over the good answers (`chosen`) and over the bad ones (`rejected`), without gradient."""
    log_probs = answers.log_probs.detach()
    rewards = settings.beta * (log_probs - answers.reference)
    sides = {"chosen": answers.is_good, "rejected": ~answers.is_good}
    return {
        f"{name}/{side}": torch.where(is_one, values, 0).sum()
        for name, values in (("rewards", rewards), ("logps", log_probs))
        for side, is_one in sides.items()
    }


def _weighted(answers: JudgedAnswers, good: Tensor, bad: Tensor, settings: VerdictSettings) -> Tensor:
    return torch.where(answers.is_good, settings.desirable_weight * good, settings.undesirable_weight * bad)
