"""A run's loss as one line through its attempts, and that line smoothed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ftui.runs.curves import Curves, Series

SMOOTHINGS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Time constants as shares of the plan; the first is no smoothing at all."""


class Stretch(NamedTuple):
    """Some steps in a row. `low`, `high` and `mean` are of the `num_values` that had a number; `num_missing` had none.

    `num_values` need not be whole: a stretch cut in two shares its steps out.
    """

    first: int
    last: int
    low: float | None
    high: float | None
    mean: float | None
    num_values: float
    num_missing: int


def stretches(curves: Curves, quantity: str = "loss") -> list[Stretch]:
    """One quantity of all attempts, oldest step first."""
    line: list[Stretch] = []
    for attempt in curves.attempts:
        series = attempt.series.get(quantity)
        if series is not None:
            line += _of(series)
    return line


def _of(series: Series) -> list[Stretch]:
    means = map(_mean, series.low, series.high, series.total, series.count)
    return list(map(Stretch, series.first, series.last, series.low, series.high, means, series.count, series.missing))


def _mean(low: float | None, high: float | None, total: float, count: int) -> float | None:
    """The mean; where the sum is beyond all floats, the middle."""
    if low is None or high is None or not count:
        return None
    mean = total / count
    return mean if low <= mean <= high else low / 2 + high / 2


def with_fine(coarse: list[Stretch], fine: Curves, curves: Curves, quantity: str = "loss") -> list[Stretch]:
    """The line with its part that `fine` knows step by step in place of the same part of `coarse`.

    `fine` was read at some time: an attempt that has begun since, as `curves` tell, may have taken the end of it back.
    """
    newest = max((attempt.attempt for attempt in fine.attempts), default=0)
    limit = min((a.start_step for a in curves.attempts if a.attempt > newest), default=math.inf)
    exact = [stretch for stretch in stretches(fine, quantity) if stretch.last <= limit]
    if not exact:
        return coarse
    begin, end = exact[0].first, exact[-1].last
    before = [part_of(s, s.first, min(s.last, begin - 1)) for s in coarse if s.first < begin]
    after = [part_of(s, max(s.first, end + 1), s.last) for s in coarse if s.last > end]
    return [*before, *exact, *after]


def part_of(stretch: Stretch, first: int, last: int) -> Stretch:
    """A part of a stretch, as if it were alike everywhere."""
    if (first, last) == (stretch.first, stretch.last):
        return stretch
    share = (last - first + 1) / (stretch.last - stretch.first + 1)
    return stretch._replace(first=first, last=last, num_values=stretch.num_values * share)


def smooth(line: Sequence[Stretch], constant: float) -> list[float | None]:
    """The debiased exponential moving average at the last step of each stretch; `None` where it has no number.

    `constant`: steps in which the weight of a value falls to 1/e; 0 for no smoothing. A stretch of n steps weighs as
    much as n steps with its mean, so the average does not depend on how the steps were put in buckets, but for what is
    lost within one.
    """
    if constant <= 0:
        return [stretch.mean for stretch in line]
    averages: list[float | None] = []
    average = weight = 0.0
    counted, decay = 0.0, 1.0
    for stretch in line:
        mean, count = stretch.mean, stretch.num_values
        if mean is None:
            averages.append(None)
            continue
        if count != counted:
            counted, decay = count, math.exp(-count / constant)
        average = decay * average + (1 - decay) * mean
        weight = decay * weight + (1 - decay)
        averages.append(average / weight if weight > 0 else mean)
    return averages
