"""What the reward functions gave for the answers of a rollout."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class RewardTable:
    """`values`: (answers, functions) float64, NaN where a function gave none; `weights`: (functions,). `errors`: of
    each function that failed, how; it gave none at all."""

    names: list[str]
    values: np.ndarray
    weights: np.ndarray
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def totals(self) -> np.ndarray:
        """(answers,) float64: the weighted sum over those that gave a reward, NaN where none did."""
        is_there = ~np.isnan(self.values)
        sums = np.where(is_there, self.values * self.weights, 0.0).sum(axis=1)
        return np.where(is_there.any(axis=1), sums, np.nan)

    def take(self, answers: Sequence[int]) -> "RewardTable":
        """What these answers got."""
        return RewardTable(self.names, self.values[list(answers)], self.weights)

    def join(self, others: "RewardTable") -> "RewardTable":
        """These answers, and behind them `others`, which the same functions judged."""
        return RewardTable(self.names, np.concatenate([self.values, others.values]), self.weights)


def reward_table(
    names: Sequence[str],
    weights: Sequence[float],
    columns: Sequence[Sequence[float | None]],
    errors: dict[str, str] | None = None,
) -> RewardTable:
    """The table of what each function gave: a column each, with an entry for each answer."""
    values = np.array([[np.nan if value is None else value for value in column] for column in columns], np.float64)
    return RewardTable(list(names), values.T.reshape(-1, len(names)), np.asarray(weights, np.float64), errors or {})
