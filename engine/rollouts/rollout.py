"""A rollout: groups of answers to the same prompt, with what they were sampled by and what they got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..rewards.reward_table import RewardTable


@dataclass(frozen=True, eq=False)
class Rollout:
    """Answer n is one to prompt n // group_size. Ids are int32 and ragged: an array for each prompt or answer.

    Args:
        step: the last finished step when it was made: its answers are those of that step's weights.
        seed: of the sampling.
        rows: the number of each prompt's row in the data.
        prompt_ids: of each prompt.
        completion_ids: of each answer, its end token included.
        log_probs: of each answer's tokens as they were sampled (nats, float32), one for each id.
        is_complete: (answers,) bool: it ended by itself, and was not cut off.
        prompts, completions: the same as texts.
        rewards: `None` until it is scored.
        advantages: (answers,) float32; `None` until it is scored. Where tokens have their own, the mean of these.
        tokens: by name, of each answer one value for each of its tokens (float32): what stage ppo measures and learns
            from (`old`, `reference`, `values`, `returns`, `advantages`).
        figures: what was measured of it as a whole, by name (stage ppo).
        kl_coef, scores: those of `TrainState` after it (stage ppo).
    """

    step: int
    seed: int
    group_size: int
    rows: np.ndarray
    prompt_ids: list[np.ndarray]
    completion_ids: list[np.ndarray]
    log_probs: list[np.ndarray]
    is_complete: np.ndarray
    prompts: list[str]
    completions: list[str]
    rewards: RewardTable | None = None
    advantages: np.ndarray | None = None
    tokens: Mapping[str, Sequence[np.ndarray]] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)
    kl_coef: float | None = None
    scores: Sequence[float] = ()

    def __post_init__(self) -> None:
        number = len(self.prompt_ids) * self.group_size
        parts = (self.completion_ids, self.log_probs, self.is_complete, self.completions)
        assert all(len(part) == number for part in parts), "a group for each prompt"
        assert len(self.rows) == len(self.prompts) == len(self.prompt_ids)

    def __len__(self) -> int:
        """The number of answers."""
        return len(self.completion_ids)
