"""One quantity as a row of bars: left is the beginning, the last bar is now."""

import math
from collections.abc import Iterable, Sequence

from ftui.runs.curves import Curves, MeanLosses, Series

from ...render.glyphs import Glyphs

FLAT_SHARE = 0.08  # of the value: a smaller range is drawn as the flat line it is
GROWTH = 1.25  # the span of steps grows in such jumps, so that all but the last bars stand still

Point = tuple[float, float]
"""A step (or time) and a value."""


def points(curves: Curves, quantity: str) -> list[Point]:
    """The middle step and mean of each bucket that holds a number, over all attempts."""
    return points_of(attempt.series[quantity] for attempt in curves.attempts if quantity in attempt.series)


def points_of(all_series: Iterable[Series | MeanLosses]) -> list[Point]:
    """The same, of the series of one quantity."""
    return [
        ((first + last) / 2, total / count)
        for series in all_series
        for first, last, total, count in zip(series.first, series.last, series.total, series.count, strict=True)
        if count
    ]


def extent(curves: Curves, quantity: str) -> tuple[float, float] | None:
    """The lowest and the highest value ever measured."""
    all_series = [attempt.series[quantity] for attempt in curves.attempts if quantity in attempt.series]
    lows = [low for series in all_series for low in series.low if low is not None]
    highs = [high for series in all_series for high in series.high if high is not None]
    return (min(lows), max(highs)) if lows else None


def span_of(steps: float) -> float:
    """The steps a spark covers: more than there are, in jumps."""
    return GROWTH ** math.ceil(math.log(max(8.0, steps), GROWTH))


def spark(curve: Sequence[Point], width: int, glyphs: Glyphs, start: float = 0) -> tuple[str, str]:
    """The bars, and the last one apart; nothing where there are no points. `start`: the step before the first one."""
    if not curve or width < 1:
        return "", ""
    span = span_of(curve[-1][0] - start)
    sums, counts, last = [0.0] * width, [0] * width, width - 1
    for step, value in curve:  # 2,000 times a frame of the live view
        at = int((step - start) / span * width)
        at = 0 if at < 0 else last if at > last else at
        sums[at] += value
        counts[at] += 1
    text = levels([total / count for total, count in zip(sums, counts, strict=True) if count], glyphs)
    return text[:-1], text[-1:]


def levels(values: Sequence[float], glyphs: Glyphs) -> str:
    """Each value as one of eight bars between the lowest and the highest of them."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    least = max(abs(high), abs(low)) * FLAT_SHARE
    if high - low < least:
        low = (low + high - least) / 2 + least / (2 * (len(glyphs.bars) - 1))  # the middle in the middle of a bar
        high = low + least
    scale = (len(glyphs.bars) - 1) / (high - low) if high > low else 0.0
    return "".join(glyphs.bars[int((value - low) * scale + 0.5)] for value in values)


def recent(values: Iterable[float | None], width: int, glyphs: Glyphs) -> tuple[str, str]:
    """The newest `width` values as bars; what is not known is left out."""
    text = levels([value for value in values if value is not None][-width:], glyphs)
    return text[:-1], text[-1:]
