"""What a chart of one or several runs shows, before anybody draws it: lines, marks, the ends and numbers of its axes.

svg_chart.py, png_chart.py and the screens draw the same values.
"""

import math
from collections.abc import Sequence

import msgspec

from ftui.measures import MEASURES
from ftui.reports.run_curves import SMOOTHING, Axis, CurvePart, RunCurves, interpolate, thinned
from ftui.reports.run_record import RunRecord
from ftui.reports.ticks import compact_number, number_label, round_numbers

MOST_PARTS = 200  # of a line: more is not seen
CLIPPED = 0.025  # of the values: the highest ones of a long run would make all others small
MANY = 80  # values, from which some are clipped
STEP_MEASURES = {
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens/s",
    "memory": "memory, GiB",
}
"""What each step has beside the measures of its stage, in words."""

AS_SET = ("learning_rate", "memory")
"""What is drawn as it is, neither averaged nor with a range."""
GIB = 2.0**30

Mark = tuple[float, float]


class ChartLine(msgspec.Struct, frozen=True):
    """A run's line: `parts` with its average, `evaluations` and `checkpoints` as marks (x, and y of the former)."""

    name: str
    parts: list[CurvePart]
    evaluations: list[Mark] = []
    checkpoints: list[float] = []


class ChartAxis(msgspec.Struct, frozen=True):
    """An axis from `low` to `high` with its numbers: where each stands and how it is written."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    words: str

    def place(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one; beyond an end at that end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


class Chart(msgspec.Struct, frozen=True):
    """Lines over two axes. `has_band`: the range of each line's steps is drawn behind it. `words`: what a line is."""

    title: str
    lines: list[ChartLine]
    x: ChartAxis
    y: ChartAxis
    has_band: bool
    words: str = "steps, smoothed"


def measure_words(name: str) -> str:
    """A measure in words; a name that is not known stands for itself."""
    return MEASURES[name].words if name in MEASURES else STEP_MEASURES.get(name, name)


def make_line(
    record: RunRecord, curves: RunCurves, measure: str, axis: Axis, smoothing: float = SMOOTHING
) -> ChartLine:
    """The line of a run with its marks; nothing is averaged where it was set and not measured."""
    positions = curves.positions.get(axis, [])
    evaluations, checkpoints = [], []
    if positions:
        for one in record.evaluations:
            value = one.loss if measure == "loss" else one.extras.get(measure)
            if value is not None:
                evaluations.append((interpolate(positions, one.step), value))
        if measure == "loss":
            steps = [entry.step for entry in record.checkpoints if entry.place == "checkpoints"]
            checkpoints = [interpolate(positions, step) for step in steps if step is not None]
    parts = thinned(curves.line(measure, axis, 0.0 if measure in AS_SET else smoothing), MOST_PARTS)
    if measure == "memory":
        parts = [part._replace(average=None if part.average is None else part.average / GIB) for part in parts]
    return ChartLine(record.run.name, parts, evaluations, checkpoints)


def make_chart(title: str, lines: Sequence[ChartLine], axis: Axis, measure: str = "loss") -> Chart | None:
    """The chart of these lines; `None` where none has a value. One line alone has its range behind it."""
    has_band = len(lines) == 1 and measure not in AS_SET
    ends = [place for line in lines for part in line.parts[:1] + line.parts[-1:] for place in (part.first, part.last)]
    values = _range(lines, has_band)
    if not ends or values is None:
        return None
    low, high = values
    words = "each step" if measure in AS_SET else "steps, smoothed"
    return Chart(title, list(lines), x_axis(axis, min(0.0, *ends), max(ends)), y_axis(low, high), has_band, words)


def _range(lines: Sequence[ChartLine], has_band: bool) -> tuple[float, float] | None:
    """The lowest and the highest value to show; of many a few high ones are left out, but never of an average's end."""
    found, kept = [], []
    for line in lines:
        found += [part.average for part in line.parts if part.average is not None]
        if has_band:
            found += [end for part in line.parts for end in (part.low, part.high) if end is not None]
        kept += [part.average for part in line.parts[-1:] if part.average is not None]
        kept += [value for _, value in line.evaluations]
    values = sorted(value for value in [*found, *kept] if math.isfinite(value))
    if not values:
        return None
    last = len(values) - 1
    high = values[int(last * (1 - CLIPPED))] if len(values) > MANY else values[-1]
    return values[0], max([high, *(value for value in kept if math.isfinite(value))])


def y_axis(low: float, high: float) -> ChartAxis:
    """Round numbers from a little below to a little above."""
    least = max(1e-9, 1e-3 * max(abs(low), abs(high)))
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    margin = 0.03 * (high - low)
    values, distance = round_numbers(low - margin, high + margin, 5)
    return ChartAxis(low - margin, high + margin, [(value, number_label(value, distance)) for value in values], "")


TIMES = (("hours", 3600.0, 3 * 3600.0), ("minutes", 60.0, 180.0), ("seconds", 1.0, 0.0))
"""Units of a time axis: their seconds, and from how many seconds on they are used."""


def x_axis(axis: Axis, low: float, high: float) -> ChartAxis:
    """From the beginning to the end of what there is."""
    high = high if high > low else low + 1
    unit, words = 1.0, {"step": "steps", "epoch": "epochs", "tokens": "target tokens", "money": "dollars"}.get(axis, "")
    if axis == "time":
        words, unit = next((name, seconds) for name, seconds, least in TIMES if high >= least)
    values, distance = round_numbers(low / unit, high / unit, 6)
    ticks = [(value * unit, _label(axis, value, distance)) for value in values]
    return ChartAxis(low, high, ticks, words)


def _label(axis: Axis, value: float, distance: float) -> str:
    text = compact_number(value) if axis in ("step", "tokens") else number_label(value, distance)
    return f"${text}" if axis == "money" else text
