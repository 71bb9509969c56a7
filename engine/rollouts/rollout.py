"""A rollout: groups of answers to the same prompt, with what they were sampled by and what they got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..generation.answer_prompts import FinishedAnswer
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
        prompts_drawn: that of `TrainState` after it; `num_left_out`: the prompts among them whose groups had no spread
            and are not in it (grpo.dynamic_sample).
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
    prompts_drawn: int | None = None
    num_left_out: int = 0

    def __post_init__(self) -> None:
        number = len(self.prompt_ids) * self.group_size
        parts = (self.completion_ids, self.log_probs, self.is_complete, self.completions)
        assert all(len(part) == number for part in parts), "a group for each prompt"
        assert len(self.rows) == len(self.prompts) == len(self.prompt_ids)

    @classmethod
    def of_answers(
        cls, prompt_ids: Sequence[np.ndarray], answers: Sequence[FinishedAnswer], decode: Any, *, step: int, seed: int,
        group_size: int, rows: Sequence[int],
    ) -> "Rollout":  # fmt: skip
        """What was generated, not scored yet. `decode`: the tokenizer's."""
        return cls(
            step=step, seed=seed, group_size=group_size, rows=np.array(rows), prompt_ids=list(prompt_ids),
            completion_ids=[np.array(answer.ids, np.int32) for answer in answers],
            log_probs=[np.array(answer.log_probs, np.float32) for answer in answers],
            is_complete=np.array([answer.ending == "stop" for answer in answers]),
            prompts=[str(decode(ids.tolist())) for ids in prompt_ids],
            completions=[str(decode(list(answer.ids), skip_special_tokens=True)) for answer in answers],
        )  # fmt: skip

    def __len__(self) -> int:
        """The number of answers."""
        return len(self.completion_ids)

    def take(self, groups: Sequence[int]) -> "Rollout":
        """These groups in this order, as far as they are answered and scored: nothing was learned from them yet."""
        size = self.group_size
        answers = [group * size + nth for group in groups for nth in range(size)]
        return replace(
            self, rows=self.rows[list(groups)], is_complete=self.is_complete[answers],
            prompt_ids=[self.prompt_ids[n] for n in groups], prompts=[self.prompts[n] for n in groups],
            completion_ids=[self.completion_ids[n] for n in answers], log_probs=[self.log_probs[n] for n in answers],
            completions=[self.completions[n] for n in answers],
            rewards=None if self.rewards is None else self.rewards.take(answers),
        )  # fmt: skip

    def join(self, others: "Rollout") -> "Rollout":
        """These groups, and behind them `others` of the same model, as far as both are answered and scored."""
        both_scored = self.rewards is not None and others.rewards is not None
        return replace(
            self, rows=np.concatenate([self.rows, others.rows]),
            is_complete=np.concatenate([self.is_complete, others.is_complete]),
            prompt_ids=self.prompt_ids + others.prompt_ids, prompts=self.prompts + others.prompts,
            completion_ids=self.completion_ids + others.completion_ids, log_probs=self.log_probs + others.log_probs,
            completions=self.completions + others.completions,
            rewards=self.rewards.join(others.rewards) if self.rewards and others.rewards and both_scored else None,
        )  # fmt: skip
