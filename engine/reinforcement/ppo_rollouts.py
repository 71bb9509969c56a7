"""What stage ppo makes of a scored rollout: values and log-probabilities measured, rewards of tokens, advantages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ftui.profile.sections.sampled_stages import PpoSection

from ..rollouts.rollout import Rollout
from ..system.train_state import TrainState
from .answer_batches import AnswerBatches, LogProbs
from .old_log_probs import OldLogProbs
from .token_advantages import TokenAdvantages, compute_token_advantages, explained_variance

SMALLEST = float(np.finfo(np.float32).eps)
MOST_MOVED = 0.2
"""Of the distance to `target`, relative to it: what counts at once."""


class Moments(NamedTuple):
    """Number and mean of scores, and the sum of their squared distances from it."""

    number: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, scores: np.ndarray) -> "Moments":
        """Those of all scores so far and of these (Chan et al. 1979)."""
        if not len(scores):
            return self
        number, away = self.number + len(scores), float(scores.mean()) - self.mean
        squares = self.squares + float(((scores - scores.mean()) ** 2).sum())
        return Moments(
            number,
            self.mean + away * len(scores) / number,
            squares + away**2 * self.number * len(scores) / number,
        )

    def normalise(self, scores: np.ndarray) -> np.ndarray:
        """Scores by their distance from the mean, in standard deviations (n - 1)."""
        spread = math.sqrt(self.squares / (self.number - 1)) if self.number > 1 else 0.0
        return (scores - self.mean) / (spread + SMALLEST)


def steer(kl_coef: float, divergence: float, target: float, horizon: int, num_answers: int) -> float:
    """The coefficient after answers that were `divergence` nats from the reference (Ziegler et al. 2019)."""
    error = min(MOST_MOVED, max(-MOST_MOVED, divergence / target - 1))
    return kl_coef * (1 + error * num_answers / horizon)


@dataclass(eq=False)
class TokenLearning:
    """Completes rollouts: `batches` has the answers of the one that is completed."""

    section: PpoSection
    state: TrainState
    measured: OldLogProbs
    batches: AnswerBatches

    def complete(self, number: int, rollout: Rollout) -> Rollout:
        """Scored rollout `number` with what is learned from each token.

        Answers without a reward are left out: their values are 0, and they are not trained on.

        Raises:
            Shutdown, GpuMemoryError, HostMemoryError: see `OldLogProbs.measure`.
        """
        assert rollout.rewards is not None, "it is scored"
        judged = np.flatnonzero(~np.isnan(rollout.rewards.totals)).tolist()
        scores, moments = self._scores(rollout, judged)
        found = self.measured.measure(number, self.batches, len(rollout))
        own = {name: [of_each[number] for number in judged] for name, of_each in found.items()}
        kl_coef = self.section.kl_coef if self.state.kl_coef is None else self.state.kl_coef
        learned = self._advantages(own, scores, kl_coef)
        tokens = own | {"returns": learned.returns, "advantages": learned.advantages}
        means = np.zeros(len(rollout), np.float32)
        means[judged] = [one.mean() for one in learned.advantages]
        return replace(
            rollout,
            advantages=means,
            tokens={name: _spread(rollout, judged, of_judged) for name, of_judged in tokens.items()},
            figures=self._figures(own, learned, scores, kl_coef),
            kl_coef=self._next_coefficient(kl_coef, learned),
            scores=list(moments) if self.section.use_score_norm else (),
        )

    def _scores(self, rollout: Rollout, judged: Sequence[int]) -> tuple[np.ndarray, Moments]:
        """(judged,) what their last tokens get, and the moments of all scores so far."""
        assert rollout.rewards is not None, "it is scored"
        scores = rollout.rewards.totals[judged]
        moments = Moments(*self.state.scores).add(scores)
        if self.section.use_score_norm:
            scores = moments.normalise(scores)
        penalty = self.section.missing_eos_penalty or 0.0
        return scores - penalty * ~rollout.is_complete[judged], moments

    def _advantages(self, own: LogProbs, scores: np.ndarray, kl_coef: float) -> TokenAdvantages:
        section = self.section
        return compute_token_advantages(
            own["old"], own.get("reference", own["old"]), own["values"], scores, kl_coef=kl_coef, gamma=section.gamma,
            lam=section.lam, kl_estimator=section.kl_estimator, whiten_rewards=section.whiten_rewards,
        )  # fmt: skip

    def _next_coefficient(self, kl_coef: float, learned: TokenAdvantages) -> float | None:
        if self.section.target is None or not learned.divergence:
            return self.state.kl_coef
        divergence = float(np.mean([one.sum() for one in learned.divergence]))
        return steer(kl_coef, divergence, self.section.target, self.section.horizon, len(learned.divergence))

    def _figures(
        self, own: LogProbs, learned: TokenAdvantages, scores: np.ndarray, kl_coef: float
    ) -> dict[str, float | None]:
        """Means over the answers, by TRL's names."""
        if not len(scores):
            return {}
        divergence = float(np.mean([one.sum() for one in learned.divergence]))
        score, penalty = float(scores.mean()), -kl_coef * divergence
        return {
            "objective/kl": divergence if self.section.has_reference else None,
            "objective/kl_coef": kl_coef,
            "objective/entropy": float(np.mean([-one.sum(dtype=np.float64) for one in own["old"]])),
            "objective/non_score_reward": penalty,
            "objective/rlhf_reward": score + penalty,
            "objective/scores": score,
            "val/var_explained": explained_variance(own["values"], learned.returns),
        }


def _spread(rollout: Rollout, judged: Sequence[int], of_judged: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of all answers: zeros for those that nobody judged."""
    found = [np.zeros(len(ids), np.float32) for ids in rollout.completion_ids]
    for number, own in zip(judged, of_judged, strict=True):
        found[number] = own
    return found
