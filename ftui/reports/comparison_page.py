"""The page of a comparison: the loss of each run on every axis, then the tables."""

from collections.abc import Sequence

from ftui.reports.charts import Chart, make_chart, make_line, measure_words
from ftui.reports.html_page import Link, make_page
from ftui.reports.run_curves import AXES, Axis, RunCurves
from ftui.reports.run_differences import compare, tables
from ftui.reports.run_record import RunRecord

TITLES: dict[Axis, str] = {"tokens": "target tokens"}


def comparison_page(
    records: Sequence[RunRecord], curves: Sequence[RunCurves], *, links: Sequence[Link] = (), refresh_seconds: int = 0
) -> str:
    """Two to six runs beside each other as a page."""
    comparison = compare(records, curves)
    charts = [chart for axis in AXES if (chart := comparison_chart(records, curves, axis)) is not None]
    shown_tables = [(title, [[line.name, *line.values] for line in lines]) for title, lines in tables(comparison)]
    return make_page(
        "comparison.html.jinja", " and ".join(comparison.runs), charts, links=links, refresh_seconds=refresh_seconds,
        comparison=comparison, tables=shown_tables,
    )  # fmt: skip


def comparison_chart(
    records: Sequence[RunRecord], curves: Sequence[RunCurves], axis: Axis, measure: str = "loss"
) -> Chart | None:
    """The lines of those runs that have the axis; `None` where none has."""
    both = zip(records, curves, strict=True)
    lines = [make_line(record, curve, measure, axis) for record, curve in both]
    what = "train loss" if measure == "loss" else measure_words(measure)
    return make_chart(f"{what}, by {TITLES.get(axis, axis)}", lines, axis, measure)
