"""What each column of dots of the loss chart shows: the range of its steps' losses, and the smoothed one."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ftui.reports.smoothing import Stretch

from .braille import DOTS_WIDE

MANY = 80  # stretches of steps, from which the highest values may be clipped
CLIPPED = 0.025  # of the values


class View(msgspec.Struct, frozen=True):
    """The steps of a plot from its left edge to its right one, and its columns of dots."""

    first: float
    last: float
    dots: int

    @property
    def per_step(self) -> float:
        """Columns of dots."""
        return (self.dots - 1) / (self.last - self.first)

    def column(self, step: float) -> int | None:
        """The column of cells a step is drawn in; `None`: it is not in view."""
        dot = math.floor((step - self.first) * self.per_step)
        return dot // DOTS_WIDE if 0 <= dot < self.dots else None


class Columns(msgspec.Struct):
    """By column of dots. `bad`: columns in which some loss was not a number; `num_stretches`: drawn at all.

    `inherited`: the smoothed loss of the runs before, of a child run.
    """

    low: list[float | None]
    high: list[float | None]
    average: list[float | None]
    bad: set[int] = set()
    num_stretches: int = 0
    inherited: Sequence[float | None] = ()

    def widen(self, start: int, end: int, low: float, high: float) -> None:
        """Make the columns from `start` to `end`, as far as there are any, hold this range too."""
        for at in range(start if start > 0 else 0, min(len(self.low), end + 1)):
            self.widen_one(at, low, high)

    def widen_one(self, at: int, low: float, high: float) -> None:
        """The same for a column that there is."""
        lowest, highest = self.low[at], self.high[at]
        if lowest is None or low < lowest:
            self.low[at] = low
        if highest is None or high > highest:
            self.high[at] = high

    def join(self, since: "Point", start: int, point: "Point") -> None:
        """Straight lines to a point, whose steps begin at `start`, from the one before."""
        for at in range(max(0, since.dot + 1), min(len(self.low), point.dot + 1)):
            self.average[at] = _between(since.average, point.average, (at - since.dot) / (point.dot - since.dot))
        for at in range(max(0, since.dot + 1), min(len(self.low), start)):
            share = (at - since.dot) / (start - since.dot)
            self.widen_one(at, _between(since.low, point.low, share), _between(since.high, point.high, share))


class Point(NamedTuple):
    """Where the last step of a stretch is drawn, in columns of dots, and what is known of the stretch."""

    dot: int
    low: float
    high: float
    average: float


def columns_of(line: Sequence[Stretch], averages: Sequence[float | None], view: View) -> Columns:
    """The line of history as columns. Where the steps have no number there is nothing, and no line leads across."""
    columns = Columns([None] * view.dots, [None] * view.dots, [None] * view.dots)
    since: Point | None = None
    per_step, offset, dots = view.per_step, view.first, view.dots
    for (first, last, low, high, _, _, num_missing), average in zip(line, averages, strict=True):
        start, end = math.floor((first - offset) * per_step), math.floor((last - offset) * per_step)
        if num_missing:
            columns.bad.update(range(max(0, start), min(dots, end + 1)))
        if average is None or low is None or high is None:
            since = None
            continue
        point = Point(end, low, high, average)
        if end >= 0:
            columns.num_stretches += 1
            columns.widen(start, end, low, high)
            if since is not None and end <= since.dot + 1 and end < dots:  # so it is with most stretches of a long run
                columns.average[end] = average
            elif since is not None and end > since.dot:
                columns.join(since, start, point)
            else:
                for at in range(max(0, start), min(dots, end + 1)):
                    columns.average[at] = average
        if start >= dots:
            break
        since = point
    return columns


def _between(a: float, b: float, share: float) -> float:
    return a + (b - a) * share


def range_shown(columns: Columns, evaluations: Sequence[float]) -> tuple[float, float] | None:
    """The lowest and the highest value of the axis, `None` where there are none.

    Of many a few high ones are left out: they would make all others small. Never the newest average: a run that
    diverges is not cut off.
    """
    losses = [*columns.low, *columns.high, *columns.inherited, *evaluations]
    values = sorted(value for value in losses if value is not None)
    if not values:
        return None
    high = values[int(len(values) * (1 - CLIPPED))] if columns.num_stretches > MANY else values[-1]
    newest = next((value for value in reversed(columns.average) if value is not None), high)
    return values[0], max(high, newest)
