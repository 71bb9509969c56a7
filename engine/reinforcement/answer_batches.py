"""The answers of a rollout as the micro-batches of its steps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from ..data.tokens import encode
from ..distributed.process_group import ProcessGroup
from ..objectives.loss import Batch, RowLayout
from ..planning.plan import Reuse
from ..rollouts.rollout import Rollout
from ..training.collate import collate
from ..training.prefetch import StepBatches
from .rollout_metrics import measure_answers

LogProbs = Mapping[str, Sequence[np.ndarray]]
"""By their names in `Batch` (`old`, `reference`, in stage ppo `values` and others), as far as they are known: of each
answer, one value for each of its tokens (float32)."""

MIXED = 0x990
"""Tells the order of answers in later passes from other uses of a seed."""


class AnswerBatches:
    """Takes the place of `Prefetcher`: `get` gives this rank's micro-batches of a step on the answers of `load`.

    Args:
        masks_truncated: answers that were cut off are not trained on.
        by_token: stage ppo: an answer without a reward is not trained on, and each pass over the answers after the
            first has them in other steps.
    """

    def __init__(
        self, reuse: Reuse, pad_id: int, ranks: ProcessGroup, layout: RowLayout, *, masks_truncated: bool,
        by_token: bool = False,
    ) -> None:  # fmt: skip
        self._reuse, self._pad_id, self._ranks, self._layout = reuse, pad_id, ranks, layout
        self._masks_truncated, self._by_token = masks_truncated, by_token
        self._rollout: Rollout | None = None
        self._parts: list[Sequence[int]] = []
        self._log_probs: LogProbs = {}
        self.reference_reward: float | None = None
        """What the rows' own answers get, where that is measured."""

    def load(self, rollout: Rollout, num_prompts: Sequence[int], log_probs: LogProbs) -> None:
        """Take these answers from now on: to `num_prompts` prompts for each of the steps that share the rollout."""
        ends = np.cumsum([0, *num_prompts]) * rollout.group_size
        self._parts = [range(first, last) for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
        self._rollout, self._log_probs = rollout, log_probs

    def get(self, step: int, size: int) -> tuple[StepBatches, float]:
        """The micro-batches of a step, of at most `size` answers, and the seconds waited for them: none."""
        assert self._rollout is not None, "answers are there before their step"
        answers = self.answers_of(step)
        batches = [batch for _, batch in self.cut(answers, size)]
        num_missing = -(-len(answers) // (size * self._ranks.size)) - len(batches)
        none = np.zeros(0, np.int64)  # the ledger of rows has none that were sampled
        facts = measure_answers(self._rollout, answers)
        if self.reference_reward is not None:
            facts["reference_reward"] = self.reference_reward
        return StepBatches(batches, self._amounts(answers), num_missing, none, none, facts=facts), 0.0

    def _amounts(self, answers: Sequence[int]) -> dict[str, int]:
        """Those of all ranks' micro-batches."""
        assert self._rollout is not None, "there are answers"
        sequences = [self._sequence(self._rollout, number) for number in answers]
        num_targets = sum(sequence.num_targets for sequence in sequences)
        return {
            "tokens": sum(len(sequence.input_ids) for sequence in sequences),
            "targets": max(1, num_targets),  # all of them may have been cut off: then nothing is learned
            "examples": len(sequences),
        }

    def answers_of(self, step: int) -> Sequence[int]:
        """The answers of a step; those of a rollout in an order that its number, the pass and the seed say."""
        rollout, (number, place) = self._rollout, divmod(step - 1, self._reuse.length)
        iteration, part = divmod(place, self._reuse.num_steps)
        answers = self._parts[part]
        if rollout is None or not (self._by_token and iteration):
            return answers
        order = np.random.default_rng([rollout.seed, MIXED, number, iteration]).permutation(len(rollout))
        mixed: list[int] = order[list(answers)].tolist()
        return mixed

    def start(self, step: int, size: int) -> None:
        """Nothing is made ahead: the answers of another rollout are not there yet."""

    @property
    def parts(self) -> Sequence[Sequence[int]]:
        """The answers of each step that shares the rollout."""
        return self._parts

    def cut(self, answers: Sequence[int], size: int, *, whole: bool = False) -> list[tuple[list[int], Batch]]:
        """This rank's micro-batches of answers of like lengths, each with the numbers of its answers; `whole`: those of
        all ranks.

        Where prompts are computed once for all their answers, these stay together.
        """
        rollout = self._rollout
        assert rollout is not None, "there are answers"

        def length(number: int) -> int:
            return len(rollout.prompt_ids[number // rollout.group_size]) + len(rollout.completion_ids[number])

        order = sorted(answers, key=length, reverse=True)
        if self._layout is RowLayout.SHARED:
            first = {number // rollout.group_size: place for place, number in reversed(list(enumerate(order)))}
            order.sort(key=lambda number: first[number // rollout.group_size])
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        own = groups if whole else groups[self._ranks.rank :: self._ranks.size]
        return [(group, self._collate(rollout, group)) for group in own]

    def _collate(self, rollout: Rollout, numbers: list[int]) -> Batch:
        sequences = [self._sequence(rollout, number) for number in numbers]
        alike = [
            (number // rollout.group_size, one.num_targets > 0) for number, one in zip(numbers, sequences, strict=True)
        ]
        sizes = [len(list(group)) for _, group in groupby(alike)]  # what is not trained on is not read either
        batch = collate([[one] for one in sequences], self._pad_id, layout=self._layout, groups=sizes)
        counts = [sequence.num_targets for sequence in sequences]
        trained = [number for number, count in zip(numbers, counts, strict=True) if count]
        values: dict[str, Any] = {
            name: torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *(of_each[n] for n in trained)]))
            for name, of_each in self._log_probs.items()
        }
        if rollout.advantages is not None:
            values = {"advantages": torch.from_numpy(rollout.advantages[numbers])} | values
        sequence_of = torch.repeat_interleave(torch.arange(len(numbers)), torch.tensor(counts))
        return replace(batch, sequence_of=sequence_of, **values)

    def _sequence(self, rollout: Rollout, number: int) -> encode.Sequence:
        prompt, answer = rollout.prompt_ids[number // rollout.group_size], rollout.completion_ids[number]
        is_trained = rollout.is_complete[number] or not self._masks_truncated
        if self._by_token and rollout.rewards is not None:
            is_trained = is_trained and not np.isnan(rollout.rewards.totals[number])
        targets = np.concatenate([np.zeros(len(prompt), bool), np.full(len(answer), is_trained)])
        return encode.Sequence(np.concatenate([prompt, answer]).astype(np.int32), targets)
