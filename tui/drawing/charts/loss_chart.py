"""A run's loss or another measure: the range of its steps, the smoothed line, what happened, over the whole plan."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ftui.measures import MEASURES
from ftui.reports.smoothing import SMOOTHINGS, smooth, stretches, with_fine
from ftui.reports.ticks import LABEL
from ftui.runs.curves import Curves
from ftui.runs.state import RunState

from ...render.spans import Frame, Line, right
from ...state.history import History
from ...state.origin import Origin
from .axes import Axis, Scale
from .braille import DOTS_HIGH, DOTS_WIDE, Cells, cells, stroke
from .loss_columns import Columns, View, columns_of, range_shown
from .loss_marks import put_bad, put_evaluations, put_grid, put_labels, put_tip, put_verticals, step_axis
from .loss_title import Standing, title
from .plot import Plot
from .spark import span_of

__all__ = ["ChartSettings", "Scale", "change_measure", "change_smoothing", "chart", "pan", "zoom"]

LEAST_WINDOW = 20.0  # steps
LEAD = 0.2  # of the steps a child run has to take: so many of its parent's are shown before them
LEFT, RIGHT = LABEL + 2, 1  # columns beside the plot: a number, a blank and the axis; a margin
OTHER_ROWS = 3  # title, axis, numbers
LEAST_WIDTH, LEAST_ROWS = 8, 2
THICK_ROWS = 16  # from which the line is two dots thick


class ChartSettings(msgspec.Struct, frozen=True):
    """What the keys change. `window`: the steps shown, `None` for those of the run; `smoothing`: one of SMOOTHINGS;
    `measure`: what is drawn, one of `ftui.measures`."""

    log: bool = False
    window: tuple[float, float] | None = None
    smoothing: int = 2
    measure: str = "loss"


def chart(
    frame: Frame,
    curves: Curves,
    history: History,
    state: RunState,
    settings: ChartSettings,
    scale: Scale,
    fine: Curves | None = None,
) -> list[Line]:
    """Title, plot, axis and its numbers. `fine`: the steps of the window one by one, where the curves bunch them."""
    measure = settings.measure
    line = stretches(curves, measure)
    origin = history.origin
    if origin is not None and measure != "loss":
        origin = replace(origin, line=())
    begin = origin.step if origin is not None else 0
    last = max(begin, state.step, line[-1].last if line else 0)
    plan = _plan(state, last)
    constant = _constant(settings, plan - begin)
    averages = smooth(line, constant)
    average = next((value for value in reversed(averages) if value is not None), None)
    standing = Standing(average, constant, measure)
    width, rows = frame.width - LEFT - RIGHT, frame.height - OTHER_ROWS
    if width < LEAST_WIDTH or rows < LEAST_ROWS:
        return [title(frame, standing, history, state)][: frame.height]
    first, end = settings.window or (first_shown(origin, plan), plan)
    view = View(first, end if end >= first + 1 else first + 1, width * DOTS_WIDE)
    if fine is not None and settings.window is not None:
        line = with_fine(line, fine, curves, measure)
        averages = smooth(line, constant)
    columns = columns_of(line, averages, view)
    if origin is not None:
        columns.inherited = columns_of(origin.line, smooth(origin.line, constant), view).average
    axis, note = _axis(columns, history, view, settings, scale, rows)
    plot = _plot(frame, columns, history, view, axis, Plot(width, rows), _tip(columns, view, last, average), measure)
    if axis is None:
        message = "no steps here" if line else "no steps yet"
        _put_message(plot, f"no finite {MEASURES[measure].words} yet" if columns.bad else message)
    drawn = _beside(frame, plot, axis)
    axis_line, numbers = step_axis(view, width, state, (begin, last), frame.glyphs)
    edge: Line = [(" " * (LEFT - 1), "text"), (frame.glyphs.corner, "rule")]
    return [
        title(frame, replace(standing, note=note), history, state),
        *drawn,
        [*edge, *axis_line],
        [(" " * LEFT, "text"), *numbers],
    ]


def _plan(state: RunState, last: int) -> float:
    """The steps of the whole plan; where it is not known, somewhat more than there are, growing in jumps."""
    return float(max(1, last, state.max_steps)) if state.max_steps is not None else span_of(last)


def _constant(settings: ChartSettings, plan: float) -> float:
    share = SMOOTHINGS[min(max(0, settings.smoothing), len(SMOOTHINGS) - 1)]
    return max(1.0, share * plan) if share > 0 else 0.0


def _axis(
    columns: Columns, history: History, view: View, settings: ChartSettings, scale: Scale, rows: int
) -> tuple[Axis | None, str]:
    """The loss axis, and what there is to say about it; `None` where there is nothing to make it for."""
    in_view = (mark.value(settings.measure) for mark in history.evaluations if view.column(mark.step) is not None)
    ends = range_shown(columns, [value for value in in_view if value is not None])
    if ends is None:
        return None, ""
    low, high = ends
    log = settings.log and low > 0
    note = "log: not possible" if settings.log and not log else ""
    return scale.fit(low, high, rows=rows, log=log, window=settings.window), note


Tip = tuple[int, str]
"""The column of dots of the newest step, and the smoothed loss there as it is written."""


def _tip(columns: Columns, view: View, last: int, average: float | None) -> Tip | None:
    if average is None or view.column(last) is None:
        return None
    dot = next((dot for dot in range(view.dots - 1, -1, -1) if columns.average[dot] is not None), None)
    return None if dot is None else (dot, _in_few_columns(average))


def _in_few_columns(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 10_000 else f"{value:.2e}"


def _plot(
    frame: Frame,
    columns: Columns,
    history: History,
    view: View,
    axis: Axis | None,
    plot: Plot,
    tip: Tip | None,
    measure: str,
) -> Plot:
    """All layers, those in the background first."""
    glyphs = frame.glyphs
    if axis is not None:
        put_grid(plot, axis, glyphs)
    put_verticals(plot, history, view, glyphs)
    marks: set[tuple[int, int]] = set()
    curve: Cells = {}
    if axis is not None:
        inherited = cells(curve_dots(columns.inherited, axis), plot.rows, None if glyphs.dots else glyphs.curve)
        plot.put_all(inherited, "loss_dim")
        plot.put_all(cells(_band(columns, axis), plot.rows, None if glyphs.dots else glyphs.band), "band")
        curve = cells(curve_dots(columns.average, axis), plot.rows, None if glyphs.dots else glyphs.curve)
        plot.put_all(curve, "loss")
        marks = put_evaluations(plot, history, view, axis, curve, glyphs, measure)
    if measure == "loss":
        put_bad(plot, columns, history, view, glyphs)
    if axis is not None and tip is not None:
        dot, text = tip
        average = columns.average[dot]
        assert average is not None
        put_tip(plot, dot, axis.dot(average), text, marks | curve.keys())
    put_labels(plot, history, view)
    return plot


def _band(columns: Columns, axis: Axis) -> list[int]:
    """From the lowest to the highest loss of each column of dots, and on to that of the column before."""
    dots = []
    before: tuple[int, int] | None = None
    for low, high in zip(columns.low, columns.high, strict=True):
        if low is None or high is None:
            dots.append(0)
            before = None
            continue
        bottom, top = axis.dot(low), axis.dot(high)
        joined = (bottom, top) if before is None else (min(bottom, before[1] + 1), max(top, before[0] - 1))
        dots.append(stroke(*joined))
        before = bottom, top
    return dots


def curve_dots(averages: Sequence[float | None], axis: Axis) -> list[int]:
    """The smoothed line, each column joined to the one before."""
    dots = []
    thick = axis.rows >= THICK_ROWS
    full = stroke(0, DOTS_HIGH * axis.rows - 1)
    before: int | None = None
    for value in averages:
        if value is None:
            dots.append(0)
            before = None
            continue
        dot = axis.dot(value)
        if before is None or before == dot:
            column = stroke(dot, dot)
        else:
            column = stroke(before + 1, dot) if dot > before else stroke(dot, before - 1)
        dots.append((column | column << 1) & full if thick else column)
        before = dot
    return dots


def _put_message(plot: Plot, text: str) -> None:
    column = (plot.width - len(text)) // 2
    if column >= 0:
        plot.put(plot.rows // 2, column, text, "muted")


def _beside(frame: Frame, plot: Plot, axis: Axis | None) -> list[Line]:
    """The rows of the plot with the loss axis on their left."""
    labels = dict(axis.ticks) if axis is not None else {}
    lines: list[Line] = []
    for row in range(plot.rows):
        label = labels.get(plot.rows - 1 - row)
        number = right(label, LABEL) + " " if label and len(label) <= LABEL else right(label or "", LABEL + 1)
        sign = frame.glyphs.tick if label else frame.glyphs.wall
        lines.append([(number, "muted"), (sign, "rule"), *plot.line(row)])
    return lines


def first_shown(origin: Origin | None, plan: float) -> float:
    """Where the chart begins: at the first step; of a child run at its own one, after some of its parent's."""
    if origin is None:
        return 0.0
    lead = LEAD * (plan - origin.step) if origin.line else 0.0
    return max(0.0, origin.step - max(0.0, lead))


def zoom(settings: ChartSettings, state: RunState, factor: float, origin: Origin | None = None) -> ChartSettings:
    """`factor` times as many steps: the newest one stays where it is, or the middle, where that is not in view.

    Zooming out ends at the whole plan, of a child run with all steps of its parents.
    """
    plan = _plan(state, state.step)
    begin = first_shown(origin, plan)
    first, last = settings.window or (begin, plan)
    size = max(LEAST_WINDOW, (last - first) * factor)
    if size >= plan:
        return replace(settings, window=(0.0, plan) if begin else None)
    fixed = state.step if first <= state.step <= last else (first + last) / 2
    start = fixed - (fixed - first) / (last - first) * size
    return replace(settings, window=_within(start, size, plan))


def pan(settings: ChartSettings, state: RunState, share: float) -> ChartSettings:
    """The window moved by a share of itself; the whole plan cannot be moved."""
    if settings.window is None:
        return settings
    first, last = settings.window
    size = last - first
    return replace(settings, window=_within(first + share * size, size, _plan(state, state.step)))


def _within(start: float, size: float, plan: float) -> tuple[float, float]:
    start = max(0.0, min(start, plan - size))
    return start, start + size


def measures_drawn(curves: Curves) -> list[str]:
    """What the steps of a run have: its loss first."""
    there = {name for attempt in curves.attempts for name in attempt.series}
    return [name for name in MEASURES if name == "loss" or name in there]


def first_measure(state: RunState) -> str:
    """What is drawn until another one is chosen: the loss on a model's own answers says nothing, their reward does."""
    return "reward" if "reward" in state.extras else "loss"


def change_measure(settings: ChartSettings, curves: Curves, by: int) -> ChartSettings:
    """The measure that is so many further."""
    names = measures_drawn(curves)
    at = names.index(settings.measure) if settings.measure in names else 0
    return replace(settings, measure=names[(at + by) % len(names)])


def change_smoothing(settings: ChartSettings, by: int) -> ChartSettings:
    """More smoothing, or less for a negative `by`."""
    return replace(settings, smoothing=min(max(0, settings.smoothing + by), len(SMOOTHINGS) - 1))
