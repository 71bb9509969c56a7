"""How much better an answer is than the others to the same prompt. Formulas are TRL's (1.16).

An answer without a reward (NaN: no function could judge it) is left out of what the others are compared with, and has
the advantage 0.
"""

from dataclasses import dataclass

import numpy as np

SMALLEST = 1e-4
"""Added to a standard deviation before it divides."""


@dataclass(frozen=True)
class Groups:
    """Rewards by prompt, and what follows from them.

    Attributes:
        rewards: (prompts, generations) float64, NaN where an answer has none.
        advantages: the same shape, float32.
    """

    rewards: np.ndarray
    advantages: np.ndarray

    @property
    def share_without_spread(self) -> float:
        """The share of the prompts whose answers all have the same reward: nothing is learned from them."""
        return float(1 - has_spread(self.rewards).mean())


def has_spread(rewards: np.ndarray) -> np.ndarray:
    """(prompts,) bool: not all answers have the same reward (those without one not counted). Of (prompts, answers)."""
    return np.asarray(~np.isclose(_spread(rewards, axis=1), 0))


def compute_advantages(rewards: np.ndarray, num_generations: int, *, scale: str, baseline: str = "mean") -> Groups:
    """Advantages of rewards (answers,), those to one prompt after another.

    `baseline` `mean` is GRPO's: the mean of the group (Shao et al. 2024). `leave_one_out` is RLOO's: the mean of the
    others (Ahmadian et al. 2024). `scale` divides by the standard deviation (n - 1) of the `group` or of the `batch`,
    or by nothing (`none`).
    """
    grouped = np.asarray(rewards, dtype=np.float64).reshape(-1, num_generations)
    if baseline == "leave_one_out":
        others = (~np.isnan(grouped)).sum(1, keepdims=True) - 1
        totals = np.nansum(grouped, axis=1, keepdims=True)
        center = np.divide(totals - grouped, others, out=grouped.copy(), where=others > 0)
    else:
        center = _means(grouped)
    advantages = grouped - center
    if scale == "group":
        advantages = advantages / (_spread(grouped, axis=1)[:, None] + SMALLEST)
    elif scale == "batch":
        advantages = advantages / (_spread(grouped.reshape(1, -1), axis=1)[0] + SMALLEST)
    return Groups(grouped, np.nan_to_num(advantages).astype(np.float32))


def _spread(values: np.ndarray, axis: int) -> np.ndarray:
    """Standard deviation with n - 1; 0 where there are not two values."""
    number = (~np.isnan(values)).sum(axis)
    away = values - np.expand_dims(_means(values)[:, 0], axis)
    return np.asarray(np.sqrt(np.nansum(away**2, axis) / np.maximum(number - 1, 1)))


def _means(values: np.ndarray) -> np.ndarray:
    """The mean of each row (rows, 1); NaN where a row has no value."""
    number = (~np.isnan(values)).sum(1, keepdims=True)
    nothing = np.full(number.shape, np.nan)
    return np.asarray(np.divide(np.nansum(values, axis=1, keepdims=True), number, out=nothing, where=number > 0))
