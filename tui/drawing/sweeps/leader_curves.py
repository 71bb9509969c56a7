"""The metric of a sweep's best trials over their steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from ftui.reports.charts import ChartLine
from ftui.reports.run_curves import CurvePart
from ftui.sweep.results.sweep_results import ResultRow, SweepView, keys_of, value_text

from ...render.spans import Frame, Line, middle, paragraph, spread, width_of
from ..charts.axes import Scale
from ..many.comparison_view import LETTERS, STYLES, lines_chart

MOST_LEADERS = len(LETTERS)


@dataclass(frozen=True)
class LeaderCurve:
    """A trial's evaluations: step and value."""

    row: ResultRow
    points: Sequence[tuple[int, float]]


def curves_view(frame: Frame, view: SweepView, curves: Sequence[LeaderCurve], scale: Scale, *, log: bool) -> list[Line]:
    """A chart over a line for each of them. Every trial has the learning rate of the whole length."""
    leaders = [curve for curve in curves if curve.points]
    if not leaders:
        return [[], *paragraph("No trial has been evaluated yet.", frame.width, "muted", indent=2)][: frame.height]
    lines = [_chart_line(leader) for leader in leaders]
    rows = max(5, frame.height - 1 - len(leaders))
    how = f"{'log, ' if log else ''}the best {len(leaders)} "
    head = spread(frame.width, [(f" {view.metric}", "title"), (" of the leaders by step", "text")], [(how, "muted")])
    drawn = [head, *lines_chart(frame, lines, "step", scale, rows, log=log)]
    return [*drawn, *(_legend(frame, view, at, leader) for at, leader in enumerate(leaders))][: frame.height]


def _chart_line(leader: LeaderCurve) -> ChartLine:
    parts = [CurvePart(step, step, value, value, value) for step, value in leader.points]
    return ChartLine(leader.row.run, parts)


def _legend(frame: Frame, view: SweepView, at: int, leader: LeaderCurve) -> Line:
    row = leader.row
    value = "" if row.value is None else f"{row.value:.5g} @ {row.step}"
    tail: Line = [(f"{value} ", "number")]
    head: Line = [(f" {LETTERS[at]} ", STYLES[at]), (row.run, "text")]
    given = ", ".join(f"{key.rpartition('.')[2]} {value_text(row.trial.values.get(key))}" for key in keys_of(view))
    room = frame.width - width_of(head) - width_of(tail) - 4
    if room > 8:
        head.append((f"  {middle(given, room).rstrip()}", "muted"))
    return spread(frame.width, head, tail)
