"""Axes: which steps and values a plot shows, and the round numbers on its edges."""

import math

import msgspec

from ftui.reports.ticks import EPSILON, LABEL, compact_number, number_label, round_numbers

from .braille import DOTS_HIGH

LEAST_SHARE = 1e-3  # of a value: a smaller range is drawn as the flat line it is
LEAST_USED = 0.55  # of an axis; one that is used less is made anew
LARGEST = 1e150  # what is beyond has no place on an axis that computes with floats
GAP = 3  # rows between two numbers on an axis, at least
OCTAVE = math.log10(2)
MOST_POWER = 300.0  # of ten, that a float still holds

Tick = tuple[int, str]
"""A row (0 is the lowest) or a column, and what is written there."""


class Axis(msgspec.Struct, frozen=True):
    """The loss axis: the middle of row j stands for `bottom + j * per_row`, or ten to that power on a `log` axis."""

    bottom: float
    per_row: float
    rows: int
    log: bool
    ticks: tuple[Tick, ...]

    def dot(self, value: float) -> int:
        """The dot of a value, counted from the bottom; what is beyond an end is drawn at that end."""
        if self.log:
            value = math.log10(value) if value > 0 else -math.inf
        rows = (value - self.bottom) / self.per_row
        if rows >= self.rows:
            return DOTS_HIGH * self.rows - 1
        return min(DOTS_HIGH * self.rows - 1, int(rows * DOTS_HIGH + DOTS_HIGH / 2 + EPSILON)) if rows > -0.5 else 0

    def suits(self, low: float, high: float) -> bool:
        """Whether it shows that range (in its own unit) without much waste."""
        bottom, top = self.bottom - self.per_row / 2, self.bottom + self.per_row * (self.rows - 0.5)
        slack = self.per_row * EPSILON
        fits = bottom - slack <= low and high <= top + slack
        return fits and high - low >= LEAST_USED * (top - bottom)


class Scale(msgspec.Struct):
    """The loss axis from frame to frame: it moves only when it must, for then every cell is painted anew."""

    axis: Axis | None = None
    view: tuple[object, ...] = ()

    def fit(self, low: float, high: float, *, rows: int, log: bool, window: tuple[float, float] | None) -> Axis:
        """An axis of so many rows that shows `low` to `high` (both above 0 if `log`). `window`: the steps shown."""
        least_value = 1 / LARGEST if log else -LARGEST
        low, high = max(least_value, min(LARGEST, low)), max(least_value, min(LARGEST, high))
        if log:
            low, high = _widened(math.log10(low), math.log10(high), LEAST_SHARE)
        else:
            low, high = _widened(low, high, max(EPSILON, LEAST_SHARE * max(abs(low), abs(high))))
        view = (rows, log, window)
        if self.axis is None or view != self.view or not self.axis.suits(low, high):
            self.axis = _log_axis(low, high, rows) if log else _linear_axis(low, high, rows)
            self.view = view
        return self.axis


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    if high - low >= least:
        return low, high
    middle = low + (high - low) / 2
    return middle - least / 2, middle + least / 2


def _linear_axis(low: float, high: float, rows: int) -> Axis:
    bottom, per_row, tick, between = _fitted(low, high, rows, _tick_sizes(high - low, (1, 2, 2.5, 5)))
    there = _tick_rows(bottom, per_row, between, rows)
    ticks = tuple((row, number_label(bottom + row * per_row, tick)) for row in there)
    return Axis(bottom, per_row, rows, False, _distinct(ticks))


def _log_axis(low: float, high: float, rows: int) -> Axis:
    """Numbers at powers of two or ten, on whole rows; in a narrow range at round numbers, on the nearest rows."""
    powers = [OCTAVE, 2 * OCTAVE, *(size * 10.0**n for n in range(3) for size in (1, 2, 5))]
    bottom, per_row, size, between = _fitted(low, high, rows, powers, most=10)
    if high - low >= LEAST_USED * per_row * rows:
        there = _tick_rows(bottom, per_row, between, rows)
        ticks = {row: compact_number(10.0 ** (bottom + row * per_row)) for row in there}
        for factor in _factors_between(size, between):
            for row in range(there.start - between, rows, between):
                at = row + round(math.log10(factor) / per_row)
                if 0 <= at < rows:
                    ticks[at] = compact_number(factor * 10.0 ** (bottom + row * per_row))
        if len(ticks) > 1:
            return Axis(bottom, per_row, rows, True, _distinct(tuple(sorted(ticks.items()))))
    bottom, per_row, _, _ = _fitted(low, high, rows, _tick_sizes(high - low, (1, 2, 2.5, 5)))
    return Axis(bottom, per_row, rows, True, _nearest_ticks(bottom, per_row, rows))


def _factors_between(size: float, rows: int) -> tuple[float, ...]:
    """More round numbers between two that are so far apart, each less than half a row beside its place."""
    if size == OCTAVE:
        return (1.5,) if rows >= 7 else ()
    if size == 1:
        return (2.0, 5.0) if rows >= 9 else (3.0,) if rows >= 6 else ()
    return ()


def _tick_sizes(span: float, sizes: tuple[float, ...]) -> list[float]:
    unit = 10.0 ** math.floor(math.log10(span))
    return [size * unit * power for power in (0.01, 0.1, 1.0) for size in sizes]


def _fitted(low: float, high: float, rows: int, sizes: list[float], most: int = 6) -> tuple[float, float, float, int]:
    """Bottom, value of a row, value between ticks and rows between ticks: the finest that shows the range.

    Ticks have a whole number of rows between them, so that they stand evenly; all is round, so it rarely changes.
    """
    least = GAP if rows > 14 else 2
    most = max(least, min(most, rows // 2))  # or else there might be a single number
    best: tuple[float, float, float, int] | None = None
    for size in sizes:
        for between in range(least, most + 1):
            per_row = size / between
            bottom = math.ceil(low / per_row - 0.5 - EPSILON) * per_row
            if bottom + per_row * (rows - 0.5) >= high and (best is None or per_row < best[1] * 0.999):
                best = (bottom, per_row, size, between)
    if best is None:
        per_row = max(high - low, EPSILON) / max(1.0, rows - 1.0)
        return low, per_row, per_row * least, least
    return best


def _tick_rows(bottom: float, per_row: float, between: int, rows: int) -> range:
    return range(-round(bottom / per_row) % between, rows, between)


def _nearest_ticks(bottom: float, per_row: float, rows: int) -> tuple[Tick, ...]:
    low = 10 ** max(-MOST_POWER, bottom - per_row / 2)
    high = 10 ** min(MOST_POWER, bottom + per_row * (rows - 0.5))
    ticks: list[Tick] = []
    values, size = round_numbers(low, high, max(1, rows // GAP))
    for value in values:
        row = round((math.log10(value) - bottom) / per_row) if value > 0 else -1
        if 0 <= row < rows and (not ticks or row - ticks[-1][0] >= 2):
            ticks.append((row, number_label(value, size)))
    return _distinct(tuple(ticks))


def _distinct(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    """Those that can be written; where the room is too small to tell two apart, the first of them."""
    rows: dict[str, int] = {}
    for row, label in ticks:
        if len(label) <= LABEL + 1:
            rows.setdefault(label, row)
    return tuple((row, label) for label, row in rows.items())
