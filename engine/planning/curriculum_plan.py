"""A curriculum as a plan: its stages one after the other, each a plan of its own over the rows it trains on."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ftui.errors import DataError
from ftui.profile.sections.curriculum import CurriculumStage
from ftui.profile.sections.train import TrainSection

from .plan import Plan, Row, SourceShare, make_plan


@dataclass(frozen=True, eq=False)
class CurriculumPlan:
    """Steps 1..max_steps through `stages`; `sections` are what the profile says of each, `tokens` those
    of each sequence.

    A step past the end (a run that was made longer) belongs to the last stage, which continues with its rows. Numbers
    of an epoch are means over the stages, which differ.
    """

    stages: tuple[Plan, ...]
    sections: tuple[CurriculumStage, ...]
    max_steps: int
    tokens: np.ndarray

    @property
    def effective_batch(self) -> int:
        """Rows of each step, the same in all stages."""
        return self.stages[0].effective_batch

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a mean epoch, at least 1."""
        return max(1, round(self.max_steps / self.epoch_of(self.max_steps)))

    @property
    def rows_per_epoch(self) -> int:
        """Rows (packed ones count once) of a mean epoch."""
        return round(self._mean(lambda stage: stage.rows_per_epoch))

    def sum_epoch(self, amounts: np.ndarray) -> int:
        """Sum over the sequences of a mean epoch; `amounts`: of each sequence."""
        return round(self._mean(lambda stage: stage.sum_epoch(amounts)))

    def _mean(self, of: Callable[[Plan], int]) -> float:
        """The mean over `steps_per_epoch` steps of what an epoch of each stage has."""
        total = 0.0
        for stage, before in zip(self.stages, self._starts, strict=True):
            steps = min(stage.max_steps, max(0, self.max_steps - before))
            total += of(stage) * stage.epoch_of(steps)
        return total / self.max_steps * self.steps_per_epoch

    def stage_at(self, step: int) -> int:
        """The number (from 0) of the stage that step `step` (1-based) belongs to."""
        return bisect_right(self._starts, step - 1, hi=len(self.stages)) - 1

    @property
    def first_steps(self) -> list[int]:
        """The first step (1-based) of each stage."""
        return [start + 1 for start in self._starts]

    @property
    def _starts(self) -> list[int]:
        """Steps before each stage."""
        return list(accumulate((stage.max_steps for stage in self.stages[:-1]), initial=0))

    def _within(self, step: int) -> tuple[int, int]:
        """The stage of a step, and its number there."""
        stage = self.stage_at(step)
        return stage, step - self._starts[stage]

    def step(self, number: int) -> list[Row]:
        """The rows of step `number` (1-based), longest first."""
        stage, own = self._within(number)
        return self.stages[stage].step(own)

    def num_tokens(self, before: int, last: int) -> int:
        """Tokens of the steps from `before` + 1 to `last`."""
        total = 0
        for number, (stage, start) in enumerate(zip(self.stages, self._starts, strict=True)):
            end = last - start if number == len(self.stages) - 1 else min(last - start, stage.max_steps)
            total += stage.num_tokens(max(0, before - start), max(0, end))
        return total

    def longest(self, number: int) -> list[Row]:
        """The `number` rows with the most tokens, of the first epochs of all stages."""
        rows = [row for stage in self.stages for row in stage.longest(number)]
        return sorted(rows, key=lambda row: -sum(int(self.tokens[index]) for index in row))[:number]

    def epoch_of(self, step: int) -> float:
        """Passes finished after `step` steps, each over the rows of its stage."""
        stage, own = self._within(max(1, step))
        before = sum(earlier.epoch_of(earlier.max_steps) for earlier in self.stages[:stage])
        return before + (self.stages[stage].epoch_of(own) if step else 0.0)

    def ends_epoch(self, step: int) -> bool:
        """Whether a pass over the rows of a stage, or a stage, is finished with this step."""
        stage, own = self._within(step)
        plan = self.stages[stage]
        return plan.ends_epoch(own) or own == plan.max_steps

    def peak_rate(self, step: int, otherwise: float) -> float:
        """The peak learning rate of the stage of this step."""
        own = self.sections[self.stage_at(step)].learning_rate
        return otherwise if own is None else own


RunPlan = Plan | CurriculumPlan


@dataclass(frozen=True)
class SequencePool:
    """All sequences there are to train on: their tokens, their targets, and (where known) the base model's loss."""

    lengths: np.ndarray
    num_targets: np.ndarray
    losses: np.ndarray | None = None

    def amounts(self, key: str, seed: int) -> np.ndarray:
        """The value of each sequence that `key` sorts by; random while the losses have yet to be measured."""
        match key:
            case "length":
                return self.lengths
            case "target_share":
                return np.asarray(self.num_targets / self.lengths)
        if self.losses is None:
            return np.random.default_rng([seed, 0x1055]).permutation(len(self.lengths))
        return self.losses


def rank_sequences(amounts: np.ndarray, section: CurriculumStage) -> np.ndarray:
    """Each sequence's place (int64) among those that the stage trains on, -1 where it is none of them.

    Equal ones stand in the order of the rows.
    """
    keys = amounts.astype(np.float64)
    order = np.argsort(keys if section.order == "ascending" else -keys, kind="stable")
    number = max(1, round(section.fraction * len(amounts)))
    ranks = np.full(len(amounts), -1, dtype=np.int64)
    ranks[order[:number]] = np.arange(number)
    return ranks


def make_curriculum_plan(
    sections: Sequence[CurriculumStage],
    pool: SequencePool,
    train: TrainSection,
    *,
    effective_batch: int,
    packing_length: int | None = None,
    sources: Sequence[SourceShare] = (),
) -> CurriculumPlan:
    """The plan of a curriculum.

    Raises:
        DataError: a stage has no rows in an epoch.
    """
    stages = []
    for number, section in enumerate(sections):
        seed = int(np.random.SeedSequence([train.rows_seed, 0xC0, number]).generate_state(1)[0])
        stage = make_plan(
            pool.lengths, effective_batch=effective_batch, max_steps=None, num_train_epochs=section.num_train_epochs,
            strategy=section.train_sampling_strategy or train.train_sampling_strategy, seed=seed,
            packing_length=packing_length, sources=sources,
            ranks=rank_sequences(pool.amounts(section.sort_by, train.rows_seed), section),
        )  # fmt: skip
        if not stage.rows_per_epoch:
            raise DataError(
                f"Stage {number + 1} of the curriculum has no rows in an epoch: the weights of its sources leave none.",
                hint=f"Raise curriculum.{number}.fraction, or the weights.",
            )
        stages.append(stage)
    total = sum(stage.max_steps for stage in stages)
    return CurriculumPlan(tuple(stages), tuple(sections), min(total, train.max_steps or total), pool.lengths)


ENDS = {
    "length": ("fewest tokens", "most tokens"),
    "target_share": ("smallest trained share", "largest trained share"),
    "loss": ("lowest loss", "highest loss"),
}


def describe_stage(section: CurriculumStage, strategy: str) -> str:
    """`the 30 % of the rows with the fewest tokens, 2 epochs`; `strategy` is train.train_sampling_strategy."""
    end = ENDS[section.sort_by][section.order == "descending"]
    words = "all rows" if section.fraction == 1 else f"the {100 * section.fraction:g} % of the rows with the {end}"
    if (section.train_sampling_strategy or strategy) == "sequential":
        words += f", {end} first"
    return f"{words}, {section.num_train_epochs:g} epoch{'' if section.num_train_epochs == 1 else 's'}"


def describe_stages(plan: CurriculumPlan, train: TrainSection) -> list[str]:
    """A line of each stage: its steps, the sequences of an epoch, and its rows."""
    lines = []
    for stage, section, first in zip(plan.stages, plan.sections, plan.first_steps, strict=True):
        last = min(first + stage.max_steps - 1, plan.max_steps)
        steps = f"steps {first:,} to {last:,}" if first <= last else f"never: train.max_steps is {plan.max_steps:,}"
        rate = train.learning_rate if section.learning_rate is None else section.learning_rate
        words = describe_stage(section, train.train_sampling_strategy)
        lines.append(f"{steps}: {words} of {stage.rows_per_epoch:,} sequences, learning rate {rate:g}")
    return lines
