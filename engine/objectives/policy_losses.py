"""Losses of sampled answers whose advantages are known: GRPO and its relatives. Formulas and names are TRL's (1.16).

A token's loss is -min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) + beta k3, where rho is how much likelier the
model finds it than the one that sampled it (PPO's surrogate, Schulman et al. 2017), A the advantage of its answer and
k3 an estimate of the divergence from the reference (Schulman 2020). With `sequence` rho is that of the whole answer,
to the power of 1 / tokens (GSPO, Zheng et al. 2025).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .answers import answer_lengths, sum_by_sequence


class SampledAnswers(NamedTuple):
    """Answers that the model gave earlier; without `reference` there is none.

    Attributes:
        log_probs: (targets,) float32, of each of their tokens under the model that is trained.
        old: (targets,) float32, under the model as it was when they were sampled.
        reference: (targets,) float32, under the reference.
        advantages: (answers,) float32.
        sequence_of: (targets,) int64, the answer of each token, ascending.
    """

    log_probs: Tensor
    old: Tensor
    reference: Tensor | None
    advantages: Tensor
    sequence_of: Tensor


@dataclass(frozen=True)
class PolicySettings:
    """Numbers of the losses, as in `[grpo]` of the profile."""

    loss_type: str = "dapo"
    importance_sampling_level: Literal["token", "sequence"] = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    beta: float = 0.0
    use_bias_correction_kl: bool = True
    max_completion_length: int = 512

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which rho counts."""
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        return 1 - self.epsilon, 1 + high


PolicySum = Callable[[Tensor, SampledAnswers, PolicySettings], tuple[str, Tensor]]


def _by_answer(losses: Tensor, answers: SampledAnswers, settings: PolicySettings) -> tuple[str, Tensor]:
    """GRPO (Shao et al. 2024): the mean over the answers of the mean over their tokens."""
    number = len(answers.advantages)
    lengths = answer_lengths(answers.sequence_of, number).clamp(min=1)
    return "examples", (sum_by_sequence(losses, answers.sequence_of, number) / lengths).sum()


def _by_token(losses: Tensor, answers: SampledAnswers, settings: PolicySettings) -> tuple[str, Tensor]:
    """DAPO (Yu et al. 2025): the mean over all tokens."""
    return "targets", losses.sum()


def _by_longest(losses: Tensor, answers: SampledAnswers, settings: PolicySettings) -> tuple[str, Tensor]:
    """Dr. GRPO (Liu et al. 2025): the sum over the tokens by what all answers could have."""
    return "examples", losses.sum() / settings.max_completion_length


POLICY_SUMS: Mapping[str, PolicySum] = MappingProxyType(
    {"grpo": _by_answer, "dapo": _by_token, "bnpo": _by_token, "dr_grpo": _by_longest}
)
"""How the losses of tokens are summed, and the amount of the step that the sum is divided by.

`bnpo` is a mean over the tokens of a batch. A batch here is a whole step, however it is cut, so that it is `dapo`'s.
"""


def policy_loss(answers: SampledAnswers, settings: PolicySettings) -> tuple[str, Tensor]:
    """The amount that the loss of a step is divided by, and this micro-batch's sum (float32 scalar)."""
    rho, advantages = _ratios(answers, settings), answers.advantages[answers.sequence_of]
    clipped = rho.clamp(*settings.bounds)
    bounded = rho if settings.delta is None else rho.clamp(max=settings.delta)  # INTELLECT-2's, for A < 0 too
    losses = -torch.min(bounded * advantages, clipped * advantages)
    if settings.beta and answers.reference is not None:
        losses = losses + settings.beta * _divergence(answers.log_probs, answers.reference, rho, settings)
    return POLICY_SUMS[settings.loss_type](losses, answers, settings)


def _divergence(log_probs: Tensor, reference: Tensor, rho: Tensor, settings: PolicySettings) -> Tensor:
    """(targets,) k3: an estimate of the divergence from the reference that is never negative.

    With `use_bias_correction_kl` times rho, so that its gradient is that of the divergence (DeepSeek-V3.2).
    """
    distance = reference - log_probs
    estimate = distance.exp() - distance - 1
    return estimate * rho if settings.use_bias_correction_kl else estimate


@torch.no_grad()
def policy_metrics(answers: SampledAnswers, settings: PolicySettings) -> dict[str, Tensor]:
    """Sums over the targets: of tokens whose rho is beyond a bound on the side where that stops the gradient, and of
    the divergence where there is a reference."""
    rho, advantages = _ratios(answers, settings), answers.advantages[answers.sequence_of]
    bounded = rho if settings.delta is None else rho.clamp(max=settings.delta)
    low, high = settings.bounds
    is_low, is_high = (bounded < low) & (advantages < 0), (bounded > high) & (advantages > 0)
    clips = {"low_mean": is_low, "high_mean": is_high, "region_mean": is_low | is_high}
    metrics = {f"clip_ratio/{name}": clipped.float().sum() for name, clipped in clips.items()}
    if answers.reference is not None:
        metrics["kl"] = _divergence(answers.log_probs, answers.reference, rho, settings).sum()
    return metrics


def _ratios(answers: SampledAnswers, settings: PolicySettings) -> Tensor:
    """(targets,) rho."""
    logs = answers.log_probs - answers.old
    if settings.importance_sampling_level == "sequence":
        number = len(answers.advantages)
        lengths = answer_lengths(answers.sequence_of, number).clamp(min=1)
        logs = (sum_by_sequence(logs, answers.sequence_of, number) / lengths)[answers.sequence_of]
    return logs.exp()
