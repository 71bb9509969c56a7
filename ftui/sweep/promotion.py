"""Which trial goes on, and to which rung: successive halving where nothing is ever stopped, only not promoted yet.

ASHA (Li et al. 2018, algorithm 2) with its promotions taken at their word: a trial is parked at its rung, and goes on
from there when it is among the best. Hyperband (Li et al. 2017) is several of these brackets that begin at later rungs.
Pure: from plain values to the next move.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TrialStand:
    """A trial as a scheduler sees it.

    Attributes:
        bracket: number of its first rung.
        results: by rung that it has reached, its value there; `None` where it has none, which is worse than any.
        target: the rung it is on its way to; `None` while it is parked, or has ended.
        is_over: it failed or was ended by somebody, and never goes on.
    """

    number: int
    bracket: int = 0
    results: Mapping[int, float | None] = field(default_factory=dict)
    target: int | None = None
    is_over: bool = False


@dataclass(frozen=True)
class Ladder:
    """The rungs, in steps from the first to the horizon, and which share of a rung goes on: one in `eta`."""

    rungs: tuple[int, ...]
    eta: int = 3
    brackets: int = 1
    greater_is_better: bool = False

    @property
    def top(self) -> int:
        """Number of the last rung, at which a trial is finished."""
        return len(self.rungs) - 1

    def bracket_of(self, number: int) -> int:
        """The bracket of a trial, dealt out by Hyperband's ceil(n / (s + 1) * eta^s) for s halvings left."""
        if self.brackets == 1:
            return 0
        sizes = [math.ceil(self.brackets / (left + 1) * self.eta**left) for left in range(self.brackets - 1, -1, -1)]
        dealt = [0] * self.brackets
        for _ in range(number + 1):
            chosen = min(range(self.brackets), key=lambda one: ((dealt[one] + 1) / sizes[one], one))
            dealt[chosen] += 1
        return chosen

    def rank(self, trial: TrialStand, rung: int) -> tuple[float, int]:
        """Trials in the order of their values at a rung, the best first; the earlier of equals."""
        value = trial.results.get(rung)
        worst = value is None or not math.isfinite(value)
        return (math.inf if worst or value is None else -value if self.greater_is_better else value, trial.number)


def next_promotion(
    ladder: Ladder, trials: Sequence[TrialStand], *, is_asking: bool = False
) -> tuple[TrialStand, int] | None:
    """The trial to go on now and the rung it goes to: of the highest rung at which one is among the best 1 / eta.

    `is_asking`: more trials will come. Then none goes on from a rung before eta^2 have come there, and the best of the
    first few is not promoted for having been early: at 32 trials that saves 6 % of the budget, and 300 searches show no
    difference in what is found (0.29 and 0.26 of 0 to 31, each give or take 0.04).
    """
    for rung in range(ladder.top - 1, -1, -1):
        for bracket in range(min(ladder.brackets, rung + 1)):
            there = [trial for trial in trials if trial.bracket == bracket and rung in trial.results]
            if is_asking and len(there) < ladder.eta**2:
                continue
            best = sorted(there, key=lambda trial: ladder.rank(trial, rung))[: len(there) // ladder.eta]
            waiting = [trial for trial in best if _is_parked_at(trial, rung)]
            if waiting:
                return waiting[0], rung + 1
    return None


def next_leader(ladder: Ladder, trials: Sequence[TrialStand], wanted: int) -> tuple[TrialStand, int] | None:
    """At the end, when nothing is left to ask: the next trial to go on until `wanted` ones are finished.

    With few trials the last rung stays empty by the rule alone, and a search that finished no trial found nothing.
    """
    finished = [trial for trial in trials if ladder.top in trial.results and trial.results[ladder.top] is not None]
    on_their_way = [trial for trial in trials if trial.target is not None]
    if len(finished) + len(on_their_way) >= wanted:
        return None
    parked = [(max(trial.results), trial) for trial in trials if trial.results and _may_go_on(trial)]
    able = [(rung, trial) for rung, trial in parked if rung < ladder.top and trial.results[rung] is not None]
    if not able:
        return None
    rung, leader = min(able, key=lambda one: (-one[0], ladder.rank(one[1], one[0])))
    return leader, rung + 1


def _is_parked_at(trial: TrialStand, rung: int) -> bool:
    return _may_go_on(trial) and max(trial.results) == rung and trial.results[rung] is not None


def _may_go_on(trial: TrialStand) -> bool:
    return trial.target is None and not trial.is_over


def best_trials(ladder: Ladder, trials: Sequence[TrialStand]) -> list[TrialStand]:
    """All with a value, the best first: by the highest rung they have reached, then by their value there."""
    reached = [trial for trial in trials if any(value is not None for value in trial.results.values())]

    def highest(trial: TrialStand) -> int:
        return max(rung for rung, value in trial.results.items() if value is not None)

    return sorted(reached, key=lambda trial: (-highest(trial), ladder.rank(trial, highest(trial))))
