"""Parallel coordinates: an axis for each searched key and one for the metric, a line across them for each trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ftui.sweep.results.sweep_results import SweepView, value_text
from ftui.sweep.space import Dimension, ValueList
from ftui.sweep.sweep_files import Trial
from ftui.text import cut

from ...render.spans import Frame, Line, clipped, paragraph, width_of
from ..charts.braille import DOTS_HIGH, DOTS_WIDE, cells, stroke
from ..charts.plot import Plot
from ..columns import widest

LEAST_ROWS = 5
BEST_SHARE = 3  # one in so many trials is drawn brightly


@dataclass(frozen=True)
class CoordinateAxis:
    """One axis: its name, the texts along it (place from 0 at the bottom to 1, text), and where each trial is."""

    name: str
    labels: Sequence[tuple[float, str]]
    places: Sequence[float]


def coordinates_view(frame: Frame, view: SweepView, rung: int, chosen: int | None) -> list[Line]:
    """Trials with a value at a rung, in the order of these values. `chosen`: the trial under the cursor."""
    order = [trial for trial in view.state.searched if trial.results.get(rung) is not None]
    order.sort(key=lambda trial: view.ladder.rank(trial.stand, rung))
    rows = frame.height - 3
    if not order or rows < LEAST_ROWS:
        text = "No trial has come to this rung yet." if not order else "The screen is too small for this."
        return [[], *paragraph(text, frame.width, "muted", indent=2)][: frame.height]
    axes = [*(_key_axis(one, order) for one in view.plan.space), _metric_axis(view, order, rung)]
    last = widest(text for _, text in axes[-1].labels) + 2
    slot = (frame.width - 2 - last) / (len(axes) - 1)
    columns = [1 + round(slot * at) for at in range(len(axes))]
    plot = Plot(frame.width, rows)
    layers = _layers(order, chosen)
    for style, sign, numbers in layers:
        dots = [0] * (frame.width * DOTS_WIDE)
        for number in numbers:
            _put_line(dots, [axis.places[number] for axis in axes], columns, rows * DOTS_HIGH)
        plot.put_all(cells(dots, rows, None if frame.glyphs.dots else sign), style)
    for axis, column in zip(axes, columns, strict=True):
        _put_axis(frame, plot, axis, column, int(slot) if axis is not axes[-1] else last)
    head: Line = []
    for axis, column in zip(axes, columns, strict=True):
        name = cut(axis.name, max(1, min(int(slot) - 1, frame.width - column)))
        head += [(" " * (column - width_of(head)), "text"), (name, "title")]
    legend = _legend(view, order, rung, chosen)
    return [head, *(plot.line(row) for row in range(rows)), [], clipped(legend, frame.width)][: frame.height]


def _layers(order: Sequence[Trial], chosen: int | None) -> list[tuple[str, str, list[int]]]:
    """Style, sign of ASCII and places in `order` of the lines that are drawn one over the other."""
    best = max(1, len(order) // BEST_SHARE)
    under = [at for at, trial in enumerate(order) if trial.number == chosen]
    return [
        ("loss_dim", ".", list(range(best, len(order)))), ("good", "*", list(range(best))), ("eval", "#", under)
    ]  # fmt: skip


def _legend(view: SweepView, order: Sequence[Trial], rung: int, chosen: int | None) -> Line:
    best = max(1, len(order) // BEST_SHARE)
    at = f" at step {view.ladder.rungs[rung]}" if view.plan.rungs else ""
    legend: Line = [(f"  {len(order)} trials by their {view.metric}{at}: ", "muted"), (f"the best {best}", "good")]
    legend += [(", others", "loss_dim")] if len(order) > best else []
    if any(trial.number == chosen for trial in order):
        legend += [(", ", "muted"), ("under the cursor", "eval")]
    return legend


def _key_axis(dimension: Dimension, order: Sequence[Trial]) -> CoordinateAxis:
    name = dimension.key.rpartition(".")[2]
    given = [trial.point[dimension.key] for trial in order]
    if isinstance(dimension, ValueList):
        last = len(dimension.values) - 1
        labels = [(at / last, _label(value)) for at, value in enumerate(dimension.values)]
        return CoordinateAxis(name, labels, [dimension.index(value) / last for value in given])
    low, high = dimension.low, dimension.high
    places = [_place(value, low, high, log=dimension.log) for value in given]
    middle = math.sqrt(low * high) if dimension.log else (low + high) / 2
    return CoordinateAxis(name, [(0.0, _label(low)), (0.5, _label(middle)), (1.0, _label(high))], places)


def _label(value: Any) -> str:
    return value_text(value)


def _metric_axis(view: SweepView, order: Sequence[Trial], rung: int) -> CoordinateAxis:
    """The best at the top. Worse ones than twice as far as the middle one stand at the bottom: one that diverged would
    leave no room for the others."""
    values = [value for trial in order if (value := trial.results[rung]) is not None]
    best, median, worst = values[0], values[len(values) // 2], values[-1]
    end = best + 2 * (median - best) if abs(worst - best) > 2 * abs(median - best) > 0 else worst
    places = [1.0 if end == best else 1 - min(1.0, (value - best) / (end - best)) for value in values]
    more = "" if end == worst else " and worse"
    labels = [(1.0, f"{best:.4g}")] if end == best else [(0.0, f"{end:.4g}{more}"), (1.0, f"{best:.4g}")]
    return CoordinateAxis(view.metric, labels, places)


def _place(value: float, low: float, high: float, *, log: bool) -> float:
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _put_line(dots: list[int], places: Sequence[float], columns: Sequence[int], height: int) -> None:
    """A trial's line from axis to axis, joined column by column."""
    heights = [round(place * (height - 1)) for place in places]
    for at in range(len(columns) - 1):
        first, last = columns[at] * DOTS_WIDE, columns[at + 1] * DOTS_WIDE
        before = heights[at]
        for dot in range(first, last + 1):
            now = heights[at] + round((heights[at + 1] - heights[at]) * (dot - first) / (last - first))
            dots[dot] |= stroke(min(before, now), max(before, now))
            before = now


def _put_axis(frame: Frame, plot: Plot, axis: CoordinateAxis, column: int, slot: int) -> None:
    """The axis over the lines, and its texts to the right of it, as many as have a row of their own."""
    for row in range(plot.rows):
        plot.put(row, column, frame.glyphs.wall, "muted")
    taken: set[int] = set()
    for place, text in sorted(axis.labels, key=lambda one: (one[0] not in (0.0, 1.0), one[0])):
        row = plot.rows - 1 - round(place * (plot.rows - 1))
        text = text[: max(0, min(slot - 2, plot.width - column - 1))]
        if row not in taken and text:
            plot.put(row, column + 1, text, "text")
            taken.add(row)
