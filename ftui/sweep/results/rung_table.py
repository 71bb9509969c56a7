"""How many trials have come to each rung of a sweep, who went on from there, and how good one had to be."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.sweep.promotion import Ladder, TrialStand


@dataclass(frozen=True)
class RungRow:
    """One rung.

    Attributes:
        step: where it is; 0 where a sweep has no rungs, and trials end where the profile says.
        came: trials with a value here, the best first; failed: those without one.
        went_on: those of `came` that were sent to a later rung, the best first.
        on_the_way: trials that are to come here.
    """

    rung: int
    step: int
    came: tuple[int, ...]
    failed: tuple[int, ...]
    went_on: tuple[int, ...]
    on_the_way: tuple[int, ...]
    best: float | None
    last_to_go_on: float | None


def rung_table(ladder: Ladder, trials: Sequence[TrialStand]) -> list[RungRow]:
    """Every rung, the lowest first."""
    return [_row(ladder, trials, rung) for rung in range(len(ladder.rungs))]


def _row(ladder: Ladder, trials: Sequence[TrialStand], rung: int) -> RungRow:
    there = sorted((one for one in trials if one.results.get(rung) is not None), key=lambda t: ladder.rank(t, rung))
    went_on = [one for one in there if max(one.results) > rung or (one.target or 0) > rung]
    return RungRow(
        rung=rung, step=ladder.rungs[rung],
        came=tuple(one.number for one in there),
        failed=tuple(one.number for one in trials if rung in one.results and one.results[rung] is None),
        went_on=tuple(one.number for one in went_on),
        on_the_way=tuple(one.number for one in trials if one.target == rung),
        best=there[0].results[rung] if there else None,
        last_to_go_on=went_on[-1].results[rung] if went_on else None,
    )  # fmt: skip
