"""Runs beside each other: their lines over one axis, what each has come to, and tables to scroll through."""

from collections.abc import Sequence

import msgspec

from ftui import units
from ftui.measures import leading_measure
from ftui.reports.charts import ChartAxis, ChartLine, make_line, measure_words, x_axis
from ftui.reports.run_curves import Axis, CurvePart, RunCurves, interpolate
from ftui.reports.run_differences import RunComparison, best_evaluation, tables
from ftui.reports.run_record import RunRecord
from ftui.reports.smoothing import SMOOTHINGS
from ftui.reports.ticks import LABEL

from ...render.spans import Frame, Line, clipped, left, middle, right, spread, thin_line
from ..charts.axes import Axis as ValueAxis
from ..charts.axes import Scale
from ..charts.braille import DOTS_WIDE, cells
from ..charts.loss_chart import curve_dots
from ..charts.loss_marks import put_grid
from ..charts.plot import Plot
from ..columns import GAP, Column, share_width, widest

LETTERS = "ABCDEF"
STYLES = ("loss", "eval", "good", "violet", "pink", "bad")
LEFT = LABEL + 2
LEAST_ROWS, LEAST_WIDTH = 3, 16
TITLES: dict[Axis, str] = {
    "step": "steps", "epoch": "epochs", "tokens": "target tokens", "time": "time", "money": "money"
}  # fmt: skip


class ComparedRuns(msgspec.Struct, frozen=True):
    """What was read of the runs."""

    records: list[RunRecord]
    curves: list[RunCurves]
    comparison: RunComparison


class CompareSettings(msgspec.Struct, frozen=True):
    """What the keys change. `top`: the first line of the tables that is shown; `smoothing`: one of SMOOTHINGS."""

    axis: Axis = "step"
    measure: str = "loss"
    log: bool = False
    smoothing: int = 3
    top: int = 0


def comparison_view(frame: Frame, compared: ComparedRuns, settings: CompareSettings, scale: Scale) -> list[Line]:
    """Title, chart, a line for each run, tables."""
    lines = [
        make_line(record, curve, settings.measure, settings.axis, SMOOTHINGS[settings.smoothing])
        for record, curve in zip(compared.records, compared.curves, strict=True)
    ]
    rest = max(0, frame.height - 1 - len(lines))
    num_rows = max(LEAST_ROWS + 2, rest * 55 // 100)
    drawn = [_title(frame, settings), *lines_chart(frame, lines, settings.axis, scale, num_rows, log=settings.log)]
    drawn += [_legend(frame, number, compared, lines[number]) for number in range(len(lines))]
    drawn.append(thin_line(frame))
    below = table_lines(frame, compared.comparison)
    height = max(0, frame.height - len(drawn))
    top = max(0, min(settings.top, len(below) - height))
    lines_shown = [*drawn, *below[top : top + height]][: frame.height]
    return [clipped(line, frame.width) for line in lines_shown]


def num_hidden(frame_height: int, frame_lines: int, num_runs: int) -> int:
    """How many lines of the tables are below the frame, at most: how far they can be scrolled."""
    rest = max(0, frame_height - 1 - num_runs)
    return max(0, frame_lines - (frame_height - 2 - num_runs - max(LEAST_ROWS + 2, rest * 55 // 100)))


def _title(frame: Frame, settings: CompareSettings) -> Line:
    share = SMOOTHINGS[settings.smoothing]
    how = f"average over {share:.1%} of the steps" if share else "every step"
    head: Line = [(f" {measure_words(settings.measure)}", "title"), (f" by {TITLES[settings.axis]}", "text")]
    return spread(frame.width, head, [(f"{'log, ' if settings.log else ''}{how} ", "muted")])


def lines_chart(
    frame: Frame, lines: Sequence[ChartLine], axis: Axis, scale: Scale, num_rows: int, *, log: bool
) -> list[Line]:
    """Plot, axis and its numbers in so many rows."""
    width, rows = frame.width - LEFT - 1, num_rows - 2
    ends = [place for line in lines for part in line.parts[:1] + line.parts[-1:] for place in (part.first, part.last)]
    values = _values(lines)
    if width < LEAST_WIDTH or not values or not ends:
        words = "no finite values yet" if ends else "not known of these runs: another axis is chosen with x"
        return [[], [(f"   {words}", "muted")], *([[]] * (num_rows - 2))]
    x = x_axis(axis, min(0.0, *ends), max(ends))
    y = scale.fit(min(values), max(values), rows=rows, log=log and min(values) > 0, window=(x.low, x.high))
    plot = Plot(width, rows)
    put_grid(plot, y, frame.glyphs)
    tips = []
    for number, line in enumerate(lines):
        averages = columns_along(line.parts, x, width * DOTS_WIDE)
        whole = None if frame.glyphs.dots else LETTERS[number].lower()
        plot.put_all(cells(curve_dots(averages, y), rows, whole), STYLES[number])
        at = next((dot for dot in range(len(averages) - 1, -1, -1) if averages[dot] is not None), None)
        if at is not None and (value := averages[at]) is not None:
            tips.append((rows - 1 - y.dot(value) // 4, min(width - 1, at // DOTS_WIDE + 1), number))
    for row, column, number in tips:
        plot.put(row, column, LETTERS[number], STYLES[number])
    return [*_beside(frame, plot, y), *_below(frame, x, width)]


def _values(lines: Sequence[ChartLine]) -> list[float]:
    return [part.average for line in lines for part in line.parts if part.average is not None]


def columns_along(parts: Sequence[CurvePart], x: ChartAxis, num_dots: int) -> list[float | None]:
    """The average of a line at each column of dots; nothing before its first and after its last part, nor where what
    was measured has no number."""
    columns: list[float | None] = [None] * num_dots
    group: list[tuple[float, float]] = []
    for part in [*parts, CurvePart(0.0, 0.0, None, None, None)]:
        if part.average is not None:
            group.append((x.place(part.last) * (num_dots - 1), part.average))
            continue
        if group:
            for dot in range(round(group[0][0]), round(group[-1][0]) + 1):
                columns[dot] = interpolate(group, dot)
        group = []
    return columns


def _beside(frame: Frame, plot: Plot, axis: ValueAxis) -> list[Line]:
    labels = dict(axis.ticks)
    lines: list[Line] = []
    for row in range(plot.rows):
        label = labels.get(plot.rows - 1 - row, "")
        number = right(label, LABEL) + " " if len(label) <= LABEL else right(label, LABEL + 1)
        lines.append([(number, "muted"), (frame.glyphs.tick if label else frame.glyphs.wall, "rule"), *plot.line(row)])
    return lines


def _below(frame: Frame, x: ChartAxis, width: int) -> list[Line]:
    """The axis, and its numbers where there is room for each."""
    marks, numbers = [frame.glyphs.rule] * width, [" "] * (LEFT + width)
    unit = f" {x.words}"
    free = 0
    for value, label in x.ticks:
        column = round(x.place(value) * (width - 1))
        marks[column] = frame.glyphs.mark
        start = max(0, LEFT + column - len(label) // 2)
        if start >= free and start + len(label) <= LEFT + width - len(unit):
            numbers[start : start + len(label)] = label
            free = start + len(label) + 1
    numbers[-len(unit) :] = unit
    edge: Line = [(" " * (LEFT - 1), "text"), (frame.glyphs.corner, "rule")]
    return [[*edge, ("".join(marks), "rule")], [("".join(numbers), "muted")]]


def _legend(frame: Frame, number: int, compared: ComparedRuns, line: ChartLine) -> Line:
    """What a run has come to, in one line."""
    record = compared.records[number]
    newest = next((part.average for part in reversed(line.parts) if part.average is not None), None)
    facts = [units.quantity(newest)]
    if (best := best_evaluation(record)) is not None:
        facts.append(f"{frame.glyphs.best} {units.quantity(leading_measure(best)[1])} @ {best.step:,}")
    facts.append(units.duration(record.seconds))
    facts += [units.money(record.dollars)] if record.dollars is not None else []
    tail: Line = [(f"{'  '.join(facts)} ", "text")]
    room = max(8, frame.width - sum(len(text) for text, _ in tail) - 5)
    head: Line = [(f" {LETTERS[number]} ", STYLES[number]), (middle(record.run.name, room).rstrip(), "number")]
    return spread(frame.width, head, tail)


def table_lines(frame: Frame, comparison: RunComparison) -> list[Line]:
    """The warnings, then every table with a column for each run."""
    lines: list[Line] = [[(f" {warning}", "warn")] for warning in comparison.warnings]
    every = [line for _, of_table in tables(comparison) for line in of_table]
    titles = [title for title, _ in tables(comparison)]
    columns = [Column(14, widest([*(line.name for line in every), *titles]))]
    for at in range(len(comparison.runs)):
        columns.append(Column(6, widest(line.values[at] for line in every)))
    widths = share_width(columns, frame.width - 1 - GAP * len(comparison.runs))
    for title, of_table in tables(comparison):
        head: Line = [(f" {left(title, widths[0])}", "title")]
        for at, width in enumerate(widths[1:]):
            head.append((" " * GAP + left(LETTERS[at], width), STYLES[at]))
        lines.append(head)
        for line in of_table:
            row: Line = [(f" {middle(line.name, widths[0])}", "muted")]
            row += [
                (" " * GAP + middle(value, width), "text") for value, width in zip(line.values, widths[1:], strict=True)
            ]
            lines.append(row)
    same = f" {comparison.num_same} other values of profiles, rows, machines and versions are the same."
    return [*lines, [(same, "faint")]]
