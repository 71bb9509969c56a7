"""The loss over the whole plan: range and smoothed line, evaluations, checkpoints, epochs and attempts."""

import math
from dataclasses import dataclass, replace

from ftui.curves import Curves
from ftui.runstate import RunState
from ftui.tui.drawing.axes import Axis, Scale, planned_end, step_ticks
from ftui.tui.drawing.raster import Raster
from ftui.tui.drawing.smoothing import SHARES, Bunch, bunches, time_constant
from ftui.tui.drawing.words import loss
from ftui.tui.history import History
from ftui.tui.spans import Frame, Line, Span, left, right, spread, width_of

__all__ = ["ChartSettings", "Scale", "chart", "panned", "smoother", "zoomed"]

LABELS = 8  # columns left of the plot: a tick's label and the axis
MARGIN = 1
NARROWEST_WINDOW = 20.0  # steps
THICK_FROM = 16  # rows from which the line is two dots thick
EPOCH_COLUMNS = 8  # between two epoch lines, at least
TICK_ROWS = 3  # of the frame that are not plot: title, axis, labels


@dataclass(frozen=True)
class ChartSettings:
    """What the keys change. `window`: the steps shown, `None` for the whole plan; `smoothing`: see SHARES."""

    log: bool = False
    window: tuple[float, float] | None = None
    smoothing: int = 3


def zoomed(settings: ChartSettings, state: RunState, factor: float) -> ChartSettings:
    """A window `factor` times as wide, its newest visible step in place; the whole plan where that is as wide."""
    end = planned_end(state.step, state.max_steps)
    first, last = settings.window or (0.0, end)
    width = (last - first) * factor
    anchor = min(last, max(float(state.step), first + width)) if settings.window is None else last
    return _clamped(settings, anchor - width, anchor, end)


def panned(settings: ChartSettings, state: RunState, share: float) -> ChartSettings:
    """The window moved by a share of its width."""
    if settings.window is None:
        return settings
    first, last = settings.window
    by = (last - first) * share
    return _clamped(settings, first + by, last + by, planned_end(state.step, state.max_steps))


def smoother(settings: ChartSettings, by: int) -> ChartSettings:
    return replace(settings, smoothing=max(0, min(len(SHARES) - 1, settings.smoothing + by)))


def _clamped(settings: ChartSettings, first: float, last: float, end: float) -> ChartSettings:
    width = max(min(NARROWEST_WINDOW, end), last - first)
    if width >= end:
        return replace(settings, window=None)
    first = min(max(0.0, first), end - width)
    return replace(settings, window=(first, first + width))


@dataclass(frozen=True)
class Plot:
    """Where steps and values come to lie, in dots; `width` and `height` are in cells."""

    width: int
    height: int
    first: float
    last: float
    axis: Axis

    def x(self, step: float) -> int:
        return math.floor((step - self.first) / (self.last - self.first) * (self.width * 2 - 1) + 0.5)

    def y(self, value: float) -> int:
        """Dots from the top; what lies above or below the axis lands on its edge."""
        dots = self.height * 4
        if self.axis.log:
            value = math.log10(value) if value > 0 else self.axis.low
        share = (value - self.axis.low) / (self.axis.high - self.axis.low)
        return min(dots - 1, max(0, dots - 1 - math.floor(share * dots)))

    def column(self, step: float) -> int:
        """The cell's column; may lie outside."""
        return self.x(step) >> 1


def chart(
    frame: Frame,
    curves: Curves,
    history: History,
    state: RunState,
    settings: ChartSettings,
    scale: Scale,
    fine: Curves | None = None,
) -> list[Line]:
    """Title, plot, axis and labels. `fine` holds the exact steps of the window where they have been read."""
    end = planned_end(state.step, state.max_steps)
    tau = time_constant(settings.smoothing, end)
    found = bunches(curves, tau, fine)
    first, last = settings.window or (0.0, end)
    width, height = frame.width - LABELS - MARGIN, frame.height - TICK_ROWS
    visible = [bunch for bunch in found if bunch.last >= first and bunch.first <= last]
    values = _values(visible, history, first, last)
    is_log = settings.log and bool(values) and min(values) > 0
    note = "" if is_log == settings.log or not values else "log: not possible"
    head = title(frame, found, history, state, settings, tau, note or ("log" if is_log else ""))
    if width < 8 or height < 2:
        return [head][: frame.height]
    if not values:
        return [head, *_empty(frame, state)]
    plot = Plot(width, height, first, last, scale.axis(values, height, log=is_log))
    return [head, *_rows(frame, plot, visible, history, state), *_lower_axis(frame, plot, state)]


def _values(visible: list[Bunch], history: History, first: float, last: float) -> list[float]:
    found = [value for bunch in visible for value in (bunch.low, bunch.high) if value is not None]
    return found + [m.loss for m in history.evaluations if m.loss is not None and first <= m.step <= last]


def _empty(frame: Frame, state: RunState) -> list[Line]:
    words = "no steps yet" if state.step == 0 else "no steps here"
    text = f"{words} {frame.glyphs.separator} {state.phase}"
    above = max(0, (frame.height - 2) // 2)
    return [*[[] for _ in range(above)], [(" " * max(0, (frame.width - len(text)) // 2), "text"), (text, "faint")]]


def title(
    frame: Frame, found: list[Bunch], history: History, state: RunState, settings: ChartSettings, tau: float, note: str
) -> Line:
    """The numbers the chart stands for; the least important go first where it is narrow."""
    glyphs, newest = frame.glyphs, found[-1] if found else None
    parts: list[Line] = []
    if newest is not None and newest.ema is not None and tau:
        parts.append([("  ", "text"), (loss(newest.ema), "key"), (f" ema({tau:.0f})", "muted")])
    finite = "loss" not in state.non_finite
    if state.step_time is not None:
        parts.append(
            [("   ", "text"), (loss(state.loss, finite=finite), "text" if finite else "bad"), (" raw", "muted")]
        )
    if history.evaluations:
        mark = history.evaluations[-1]
        value = (loss(mark.loss, finite=False), "text")
        parts.append([(f"   {glyphs.evaluation} ", "eval"), value, (" eval", "muted")])
    line: Line = [(" loss", "title")]
    if settings.window is not None:
        first, last = settings.window
        parts.append([(f"   steps {first:,.0f} {glyphs.dash} {last:,.0f}", "warn")])
    if note:
        parts.append([(f"   {note}", "warn" if "not" in note else "muted")])
    extras: list[Line] = []
    if (best := history.best) is not None:
        extras.append([(f"{glyphs.best} ", "eval"), (loss(best.loss), "text"), (f" best @ {best.step:,} ", "muted")])
    if state.checkpoints:
        number = len(state.checkpoints)
        words = " checkpoint   " if number == 1 else " checkpoints   "
        extras.append([(f"{glyphs.checkpoint} ", "good"), (f"{number}", "text"), (words, "muted")])
    end: Line = []
    for part in parts:
        if width_of([*line, *part]) <= frame.width:
            line += part
    for part in extras:
        if width_of([*line, *part, *end]) + 3 <= frame.width:
            end = [*part, *end]
    return spread(frame.width, line, end)


def _rows(frame: Frame, plot: Plot, visible: list[Bunch], history: History, state: RunState) -> list[Line]:
    band, curve = _drawn(plot, visible)
    over = _marks(frame, plot, visible, history)
    under = _lines(frame, plot, history)
    labels = dict(plot.axis.ticks)
    glyphs, rows = frame.glyphs, []
    for y in range(plot.height):
        text = labels.get(y)
        wall = (glyphs.tick if text else glyphs.wall, "rule")
        line: Line = [(right(text or "", LABELS - 2) + " ", "muted"), wall]
        marks, below, dim, bright = over.get(y, {}), under.get(y, {}), band.cells[y], curve.cells[y]
        run, style = "", "text"
        for x in range(plot.width):
            if x in marks:
                sign, name = marks[x]
            elif bright[x]:
                sign, name = (chr(0x2800 + bright[x]) if glyphs.dots else glyphs.curve), "loss"
            elif dim[x]:
                sign, name = (chr(0x2800 + dim[x]) if glyphs.dots else glyphs.band), "band"
            elif x in below:
                sign, name = below[x]
            elif text and x % 4 == 2:
                sign, name = glyphs.grid, "rule"
            else:
                sign, name = " ", style
            if name != style and run:
                line.append((run, style))
                run = ""
            run, style = run + sign, name
        rows.append([*line, (run, style)])
    return rows


def _drawn(plot: Plot, visible: list[Bunch]) -> tuple[Raster, Raster]:
    """Band and smoothed line as dots. The line is broken where there were no numbers."""
    band, curve = Raster(plot.width, plot.height), Raster(plot.width, plot.height)
    thick = 2 if plot.height >= THICK_FROM else 1
    points: list[tuple[int, int]] = []
    for bunch in visible:
        if bunch.low is None or bunch.high is None or bunch.ema is None:
            curve.line(points, thick)
            points = []
            continue
        begin, end = plot.x(bunch.first), plot.x(bunch.last)
        top, bottom = plot.y(bunch.high), plot.y(bunch.low)
        for x in range(max(0, begin), min(plot.width * 2 - 1, end) + 1):
            band.column(x, top, bottom)
        point = ((begin + end) // 2, plot.y(bunch.ema))
        if points and points[-1][0] == point[0]:
            points[-1] = point
        else:
            points.append(point)
    curve.line(points, thick)
    return band, curve


Overlay = dict[int, dict[int, Span]]
"""Signs by row and column of cells."""


def _marks(frame: Frame, plot: Plot, visible: list[Bunch], history: History) -> Overlay:
    """What stands over the curves: evaluations, the newest value at the tip, steps without a number."""
    over: Overlay = {}
    glyphs, best, drawn = frame.glyphs, history.best, -2
    for mark in history.evaluations:
        x = plot.column(mark.step)
        if mark.loss is None or not 0 <= x < plot.width or (x - drawn < 2 and mark is not best):
            continue
        drawn = x
        over.setdefault(plot.y(mark.loss) >> 2, {})[x] = (glyphs.best if mark is best else glyphs.evaluation, "eval")
    for bunch in visible:
        if bunch.missing and 0 <= (x := plot.column(bunch.last)) < plot.width:
            over.setdefault(0, {})[x] = ("x", "bad")
    newest = visible[-1] if visible else None
    if newest is not None and newest.ema is not None:
        text, x = f" {loss(newest.ema)[:6]}", plot.column(newest.last) + 1
        if x + len(text) <= plot.width:
            row = over.setdefault(plot.y(newest.ema) >> 2, {})
            row.update({x + i: (sign, "key") for i, sign in enumerate(text)})
    return over


def _lines(frame: Frame, plot: Plot, history: History) -> Overlay:
    """What stands behind the curves: where epochs and attempts begin."""
    under: Overlay = {}
    glyphs, per_epoch = frame.glyphs, history.plan.steps_per_epoch if history.plan else 0
    if per_epoch:
        spacing = plot.width * per_epoch / (plot.last - plot.first)
        every = max(1, math.ceil(EPOCH_COLUMNS / spacing))
        number = every * max(1, math.ceil(plot.first / per_epoch / every))
        while number * per_epoch < plot.last:
            _vertical(under, plot, plot.column(number * per_epoch), (glyphs.epoch, "rule"), f"{number + 1}", 0)
            number += every
    for begin in history.begins:
        x = plot.column(begin.step)
        _vertical(under, plot, x, (glyphs.attempt, "violet_dim"), f"#{begin.attempt}", plot.height - 1)
    return under


def _vertical(under: Overlay, plot: Plot, x: int, sign: Span, label: str, row: int) -> None:
    if not 0 <= x < plot.width:
        return
    for y in range(plot.height):
        under.setdefault(y, {})[x] = sign
    start = x if row == 0 else x + 1
    style = "faint" if row == 0 else "violet"
    for i, letter in enumerate(label):
        if start + i < plot.width:
            under[row][start + i] = (letter, style)


def _lower_axis(frame: Frame, plot: Plot, state: RunState) -> list[Line]:
    """The axis with the checkpoints on it, the passed part brighter; below it round steps."""
    glyphs, now = frame.glyphs, plot.column(state.step)
    signs: list[Span] = [(glyphs.rule, "rule" if x > now else "muted") for x in range(plot.width)]
    labels = [" "] * (plot.width + 1)
    for step, text in step_ticks(plot.first, plot.last, plot.width):
        x = min(plot.width - 1, plot.column(step))
        signs[x] = (glyphs.mark, signs[x][1])
        start = min(max(0, x - len(text) // 2), len(labels) - len(text))
        labels[start : start + len(text)] = text
    for checkpoint in state.checkpoints:
        if 0 <= (x := plot.column(checkpoint.step)) <= plot.width:
            signs[min(x, plot.width - 1)] = (glyphs.checkpoint, "good")
    line: Line = [(" " * (LABELS - 1), "text"), (glyphs.corner, "rule")]
    for sign, style in signs:
        if line[-1][1] == style:
            line[-1] = (line[-1][0] + sign, style)
        else:
            line.append((sign, style))
    return [line, [(" " * LABELS, "text"), (left("".join(labels), plot.width + 1), "muted")]]
