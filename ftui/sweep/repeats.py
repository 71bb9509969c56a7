"""The best trials again with other seeds: whether what was found is more than luck."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from ftui.sweep.promotion import Ladder, best_trials
from ftui.sweep.sweep_files import SweepState, Trial, TrialAsked
from ftui.sweep.sweep_plan import SweepPlan

SEED = "train.seed"
DEVIATIONS = 2.0
"""Means closer than so many standard deviations are no difference: of three seeds each, p is about 0.07 there."""


@dataclass(frozen=True)
class RepeatedTrial:
    """A trial and its repeats: the value of each seed at the last rung, its own first."""

    trial: Trial
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return mean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds; `None` of one alone."""
        return stdev(self.values) if len(self.values) > 1 else None


def next_repeat(plan: SweepPlan, ladder: Ladder, state: SweepState, seed: int) -> TrialAsked | None:
    """The next of the best trials to be trained again, with a seed of its own from the profile's `seed` on."""
    for trial in finished_leaders(plan, ladder, state):
        number = sum(one.repeat_of == trial.number for one in state.trials)
        if number < plan.seeds - 1:
            derived = trial.derived | {SEED: seed + 1 + number}
            return TrialAsked(
                trial=len(state.trials), point=trial.point, derived=derived, bracket=ladder.top, repeat_of=trial.number
            )
    return None


def finished_leaders(plan: SweepPlan, ladder: Ladder, state: SweepState) -> list[Trial]:
    """The best trials that are finished, as many as are to be repeated."""
    finished = [one.stand for one in state.searched if one.results.get(ladder.top) is not None]
    return [state.trials[stand.number] for stand in best_trials(ladder, finished)[: plan.repeat_top]]


def repeated_trials(plan: SweepPlan, ladder: Ladder, state: SweepState) -> list[RepeatedTrial]:
    """Those that have been repeated, the best mean first."""
    found = []
    for trial in finished_leaders(plan, ladder, state):
        again = [one.results.get(ladder.top) for one in state.trials if one.repeat_of == trial.number]
        values = [value for value in (trial.results.get(ladder.top), *again) if value is not None]
        if len(values) > 1:
            found.append(RepeatedTrial(trial, tuple(values)))
    return sorted(found, key=lambda one: -one.mean if ladder.greater_is_better else one.mean)


def is_no_difference(one: RepeatedTrial, other: RepeatedTrial) -> bool:
    """Whether two means are closer than two standard deviations, pooled over both."""
    assert one.deviation is not None and other.deviation is not None, "both were repeated"
    pooled = math.sqrt((one.deviation**2 + other.deviation**2) / 2)
    return abs(one.mean - other.mean) <= DEVIATIONS * pooled


def verdict(one: RepeatedTrial, best: RepeatedTrial) -> str:
    """Whether a trial that was repeated differs from the best one."""
    return "best" if one is best else "no difference" if is_no_difference(one, best) else "worse"


def repeat_lines(names: Sequence[str], repeated: Sequence[RepeatedTrial]) -> list[str]:
    """Mean and deviation of each, and whether it differs from the best."""
    lines = []
    for name, one in zip(names, repeated, strict=True):
        what = verdict(one, repeated[0])
        lines.append(f"{name}: {one.mean:.5g} ± {one.deviation:.2g} over {len(one.values)} seeds: {what}")
    return lines
