"""The curves of a run over steps, epochs, target tokens, time or money.

metrics.jsonl is read once, in pieces, into buckets that do not grow with it (ftui/runs/curves.py). Each bucket also
knows the epoch and the time of its last step and the sum of its target tokens, which makes the other axes.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from ftui.reports.run_record import RunRecord
from ftui.reports.smoothing import smooth, stretches
from ftui.runs.curves import CurveReader, Curves, values_of
from ftui.runs.events import Step
from ftui.runs.records.spending import AttemptSpan, spent

Axis = Literal["step", "epoch", "tokens", "time", "money"]
AXES: tuple[Axis, ...] = get_args(Axis)
AXIS_WORDS: dict[Axis, str] = {
    "step": "step", "epoch": "epoch", "tokens": "target tokens", "time": "seconds", "money": "dollars",
}  # fmt: skip
SMOOTHING = 0.02  # of its steps: the time constant of the average (ftui/reports/smoothing.py)
_EPOCH, _TIME, _TARGETS = " epoch", " time", " target tokens"  # a measure of such a name is not drawn


class CurvePart(NamedTuple):
    """A part of a curve between two places of its axis: lowest and highest value, and the average at its end."""

    first: float
    last: float
    low: float | None
    high: float | None
    average: float | None


class RunCurves(msgspec.Struct, frozen=True):
    """The curves of a run. `positions`: where its steps stand on each axis; an axis without any is not known."""

    curves: Curves
    last_step: int
    positions: dict[Axis, list[tuple[float, float]]]

    def measures(self) -> list[str]:
        """The names of what its steps have, the loss first."""
        names = dict.fromkeys(name for attempt in self.curves.attempts for name in attempt.series)
        return sorted((name for name in names if not name.startswith(" ")), key=lambda name: name != "loss")

    def end(self, axis: Axis) -> float | None:
        """Where its last step stands; `None` where that is not known."""
        positions = self.positions.get(axis)
        return positions[-1][1] if positions else None

    def line(self, measure: str, axis: Axis, smoothing: float = SMOOTHING) -> list[CurvePart]:
        """A measure along an axis. `smoothing`: the time constant of the average, as a share of the steps (0: none).

        Nothing where the axis is not known.
        """
        positions = self.positions.get(axis)
        if not positions:
            return []
        line = stretches(self.curves, measure)
        constant = max(1.0, smoothing * self.last_step) if smoothing else 0.0
        return [
            CurvePart(
                interpolate(positions, stretch.first - 1 if axis != "step" else stretch.first),
                interpolate(positions, stretch.last),
                stretch.low,
                stretch.high,
                average,
            )
            for stretch, average in zip(line, smooth(line, constant), strict=True)
        ]

    def value_at(self, measure: str, axis: Axis, at: float) -> float | None:
        """The average of a measure at that place of the axis; `None` before its first and after its last step."""
        line = [(place.last, place.average) for place in self.line(measure, axis) if place.average is not None]
        if not line or not line[0][0] <= at <= line[-1][0] * (1 + 1e-9):
            return None
        return interpolate([(x, y) for x, y in line if y is not None], at)


def read_run_curves(record: RunRecord) -> RunCurves:
    """All curves of a run; it reads the whole of metrics.jsonl (a million steps take some seconds)."""
    reader = CurveReader(record.run, afresh=True, values=_values)
    for attempt in record.attempts:
        if attempt.start_step is not None:
            reader.begin(attempt.number, attempt.start_step)
    while reader.advance():
        continue
    curves = reader.curves
    last_step = max((attempt.last_step for attempt in curves.attempts), default=0)
    return RunCurves(curves, last_step, _positions(curves, record.spans) if curves.attempts else {})


def _values(record: Step) -> Iterator[tuple[str, float | None]]:
    yield from (pair for pair in values_of(record) if not pair[0].startswith(" "))
    yield _EPOCH, record.epoch
    yield _TIME, record.time
    yield _TARGETS, float(record.num_target_tokens)


def _positions(curves: Curves, spans: Sequence[AttemptSpan]) -> dict[Axis, list[tuple[float, float]]]:
    """Steps, ascending, and where each stands on every axis; the first is the one before the first step."""
    before = float(curves.attempts[0].start_step)
    axes: dict[Axis, list[tuple[float, float]]] = {axis: [(before, 0.0)] for axis in AXES}
    axes["step"] = [(before, before)]
    if before and (first := curves.attempts[0].series[_EPOCH].low[:1]):  # a run that was made from another one's
        axes["epoch"] = [(before, first[0] or 0.0)]
    by_number = {span.number: span for span in spans}
    tokens = 0.0
    for curve in curves.attempts:
        epochs, times, targets = (curve.series[name] for name in (_EPOCH, _TIME, _TARGETS))
        span, earlier = by_number.get(curve.attempt), spent(spans, before=curve.attempt)
        for at, step in enumerate(epochs.last):
            tokens += targets.total[at]
            seconds = (times.high[at] or 0.0) - span.begin if span is not None else None
            per_hour = span.dollars_per_hour if span is not None else None
            places = {
                "step": float(step),
                "epoch": epochs.high[at],
                "tokens": tokens,
                "time": None if seconds is None else earlier.seconds + seconds,
                "money": None
                if seconds is None or per_hour is None or earlier.dollars is None
                else earlier.dollars + seconds * per_hour / 3600,
            }
            for axis in AXES:
                if (place := places[axis]) is not None:
                    axes[axis].append((float(step), max(place, axes[axis][-1][1])))  # a clock may be set back
    return {axis: positions for axis, positions in axes.items() if len(positions) == len(axes["step"])}


def interpolate(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at `at` on straight lines between points whose first numbers ascend; that of an end beyond it."""
    after = bisect_left(points, (at,))
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0) if x1 > x0 else y1


def thinned(line: Sequence[CurvePart], most: int) -> list[CurvePart]:
    """The line in at most about `most` parts: neighbours become one with the range of both and the later average."""
    size = -(-len(line) // most) if most else len(line)
    parts = []
    for start in range(0, len(line), max(1, size)):
        group = line[start : start + max(1, size)]
        lows = [place.low for place in group if place.low is not None]
        highs = [place.high for place in group if place.high is not None]
        average = next((place.average for place in reversed(group) if place.average is not None), None)
        parts.append(
            CurvePart(group[0].first, group[-1].last, min(lows, default=None), max(highs, default=None), average)
        )
    return parts
