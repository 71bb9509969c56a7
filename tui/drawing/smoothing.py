"""The loss as a chart draws it: bunches of steps, each with its range, its mean, and a smoothed value.

The smoothed value is an exponential moving average with the bias of its start taken out (Kingma & Ba, 2015, section 3).
Its time constant is a share of the plan, so that a setting looks the same on 100 steps and on a million. A bunch of n
steps with mean m moves the average as n steps of loss m would: exact where bunches are single steps.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ftui.curves import Curves, Series

SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Time constants as shares of the plan; the first one smooths nothing."""


@dataclass(frozen=True)
class Bunch:
    """Steps `first` to `last`. Everything but the last field is `None` where none of them had a number."""

    first: int
    last: int
    low: float | None
    high: float | None
    mean: float | None
    ema: float | None
    count: int
    missing: int


def time_constant(level: int, plan: float) -> float:
    """In steps: 0 for no smoothing, else at least one step."""
    share = SHARES[level]
    return max(1.0, share * plan) if share else 0.0


def bunches(curves: Curves, tau: float, fine: Curves | None = None) -> list[Bunch]:
    """All bunches of the loss over all attempts, smoothed. Where `fine` has steps it stands in for the coarser ones."""
    coarse = list(_raw(curves))
    if fine is not None and (close := list(_raw(fine))):
        first, last = close[0].first, close[-1].last
        before = [bunch for bunch in coarse if bunch.last < first]
        coarse = [*before, *close, *(bunch for bunch in coarse if bunch.first > last)]
    return list(_smoothed(coarse, tau))


def _raw(curves: Curves) -> Iterator[Bunch]:
    for attempt in curves.attempts:
        series = attempt.series.get("loss")
        if series is not None:
            yield from _of_series(series)


def _of_series(series: Series) -> Iterator[Bunch]:
    columns = (series.first, series.last, series.low, series.high, series.means(), series.count, series.missing)
    for first, last, low, high, mean, count, missing in zip(*columns, strict=True):
        yield Bunch(first, last, low, high, mean, None, count, missing)


def _smoothed(found: Iterable[Bunch], tau: float) -> Iterator[Bunch]:
    total = weight = 0.0
    for bunch in found:
        if bunch.mean is None:
            yield bunch
            continue
        decay = math.exp(-bunch.count / tau) if tau else 0.0
        total = decay * total + (1 - decay) * bunch.mean
        weight = decay * weight + (1 - decay)
        yield Bunch(
            bunch.first, bunch.last, bunch.low, bunch.high, bunch.mean, total / weight, bunch.count, bunch.missing
        )
