"""Axes: round numbers at even distances, and a range that rarely changes (each change repaints the whole chart)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

USED_LEAST = 0.55  # of the range: below that it is chosen anew
CLIPPED_ABOVE = 0.975  # of many values: the first steps of a new model would flatten all the others
MANY = 80
ROUND = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Axis:
    """Values `low` (bottom) to `high` (top), in log10 where `log`; `ticks` are rows from the top with their labels."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[int, str], ...]


class Scale:
    """Remembers the range of the last frame."""

    def __init__(self) -> None:
        self._axis: Axis | None = None
        self._key: tuple[int, bool] = (0, False)

    def axis(self, values: Sequence[float], height: int, *, log: bool) -> Axis:
        """The range for these values (at least one), the last one where it still serves."""
        low, high = extent(values)
        if log:
            low, high = math.log10(low), math.log10(high)
        old = self._axis
        if (
            old is None
            or self._key != (height, log)
            or low < old.low
            or high > old.high
            or high - low < USED_LEAST * (old.high - old.low) * (1 - 1 / height)
        ):
            self._key = (height, log)
            self._axis = _log_axis(low, high, height) if log else _linear_axis(low, high, height)
        assert self._axis is not None
        return self._axis


def extent(values: Sequence[float]) -> tuple[float, float]:
    """The range to show: all of it, but for the highest few of many."""
    ordered = sorted(values)
    share = CLIPPED_ABOVE if len(ordered) > MANY else 1.0
    return ordered[0], ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _linear_axis(low: float, high: float, height: int) -> Axis:
    """Rows of a round size, a whole number of them between two ticks, so that the grid is even."""
    span = max(high - low, abs(high) * 1e-3, 1e-9)
    magnitude = 10.0 ** math.floor(math.log10(span))
    best: tuple[float, float, float, int] | None = None
    for step in (share * magnitude for share in ROUND):
        for rows in range(3 if height > 14 else 2, 7):
            unit = step / rows
            bottom = math.floor(low / unit) * unit
            if bottom + unit * (height - 0.5) >= low + span and (best is None or unit < best[0] * 0.999):
                best = unit, bottom, step, rows
    if best is None:
        best = span / height, low, span, height
    unit, bottom, step, rows = best
    offset = -round(bottom / unit) % rows
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (0 if _is_single(step) else 1)
    ticks = [(height - 1 - row, number(bottom + unit * row, decimals)) for row in range(offset, height, rows)]
    return Axis(bottom, bottom + unit * height, False, tuple(ticks))


def _is_single(step: float) -> bool:
    """Whether one digit says it (0.2, not 0.25)."""
    digit = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(digit - round(digit)) < 0.01


def _log_axis(low: float, high: float, height: int) -> Axis:
    span = max(high - low, 0.05)
    low, high = low - span * 0.03, low + span * 1.05
    ticks: list[tuple[int, str]] = []
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5) if span > 0.4 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9):
            place = exponent + math.log10(digit)
            row = height - 1 - int((place - low) / (high - low) * height)
            if low <= place < high and all(abs(row - other) > 1 for other, _ in ticks):
                ticks.append((row, f"{digit * 10.0**exponent:.3g}"))
    return Axis(low, high, True, tuple(ticks))


def number(value: float, decimals: int) -> str:
    """A tick's label in at most six columns."""
    text = f"{value:.{decimals}f}"
    return text if len(text) <= 6 else f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def step_ticks(first: float, last: float, columns: int) -> list[tuple[float, str]]:
    """Round steps for the lower axis, about 16 columns apart, with their labels."""
    span = max(1.0, last - first)
    raw = span / max(1, columns // 16)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = max(1.0, next(share * magnitude for share in (1, 2, 2.5, 5, 10) if share * magnitude >= raw * 0.999))
    begin = math.ceil(first / step - 1e-9)
    marks = [(begin + i) * step for i in range(int((last - begin * step) / step + 1e-9) + 1)]
    return [(mark, step_label(mark, last)) for mark in marks]


def step_label(step: float, last: float) -> str:
    if step and last >= 2_000_000:
        return f"{step / 1e6:g}M"
    return f"{step / 1000:g}k" if step and last >= 2000 else f"{step:g}"


def planned_end(step: int, max_steps: int | None) -> float:
    """Where the lower axis ends: the plan, or a round step some way ahead where there is none (jumps by a quarter)."""
    if max_steps is not None:
        return float(max(1, max_steps, step))
    return float(math.ceil(1.25 ** math.ceil(math.log(max(8, step + 1), 1.25))))
