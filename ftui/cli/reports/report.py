"""`ftui report RUN ...`: runs as a page, a table or a picture, in a file of its own."""

import io
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ftui.cli.terminal import LiveOutput
from ftui.dataset.report import Report
from ftui.errors import FINISHED, DiskError, UsageError
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from ftui.reports.charts import make_chart, make_line, measure_words
from ftui.reports.comparison_page import comparison_chart, comparison_page
from ftui.reports.png_chart import draw_png
from ftui.reports.run_curves import AXIS_WORDS, Axis, RunCurves, read_run_curves
from ftui.reports.run_differences import check_number
from ftui.reports.run_page import report_page
from ftui.reports.run_record import RunRecord, read_records
from ftui.reports.step_table import write_table
from ftui.reports.svg_chart import draw_svg
from ftui.runs.run_folder import find_run
from ftui.system.files import replace_file
from ftui.text import shown
from ftui.units import size


def write_report(
    names: Sequence[str], kind: str, out: str | None, force: bool, over: Axis, measure: str, rows: bool,
    allow: Collection[str],
) -> int:  # fmt: skip
    """Write the file and say where it is.

    Raises:
        FtuiError: there is no such run, nothing to draw, or the file is there already.
    """
    if len(names) > 1:
        check_number(len(names))
    if rows and (kind != "html" or len(names) > 1):
        raise UsageError("--rows goes with the page of one run.", hint="ftui report RUN --html --rows")
    to = None if out == "-" else Path(out or f"{'-and-'.join(find_run(name).name for name in names)}.{kind}")
    if to is not None and os.path.lexists(to) and not force:
        raise UsageError(f"{to} is there already.", hint="--force overwrites it; --out FILE writes another one.")
    records = read_records([find_run(name) for name in names])
    curves = [read_run_curves(record) for record in records]
    match kind:
        case "html":
            found = _look_at_rows(records[0], allow) if rows else None
            content = _page(records, curves, over, found).encode()
        case "csv":
            content = _table(records, curves).encode()
        case _:
            content = _picture(records, curves, over, measure, kind)
    _write(content, to)
    return FINISHED


def _page(records: Sequence[RunRecord], curves: Sequence[RunCurves], over: Axis, found: Report | None) -> str:
    if len(records) > 1:
        return comparison_page(records, curves)
    return report_page(records[0], curves[0], report=found, axis=over)


def _table(records: Sequence[RunRecord], curves: Sequence[RunCurves]) -> str:
    text = io.StringIO(newline="")
    write_table(records, curves, text)
    return text.getvalue()


def _picture(records: Sequence[RunRecord], curves: Sequence[RunCurves], over: Axis, measure: str, kind: str) -> bytes:
    there = dict.fromkeys(name for curve in curves for name in curve.measures())
    if measure not in there:
        known = f"There is {', '.join(map(shown, there))}." if there else "No step has been taken yet."
        raise UsageError(
            f"{shown(measure)} was not measured in {' or '.join(r.run.name for r in records)}.", hint=known
        )
    unknown = [record.run.name for record, curve in zip(records, curves, strict=True) if curve.end(over) is None]
    if unknown:
        hint = "Set hardware.price_per_hour in its profile." if over == "money" else "--over step"
        raise UsageError(f"{', '.join(unknown)}: {AXIS_WORDS[over]} are not known.", hint=hint)
    if len(records) > 1:
        chart = comparison_chart(records, curves, over, measure)
    else:
        title = f"{records[0].run.name}: {measure_words(measure)}"
        chart = make_chart(title, [make_line(records[0], curves[0], measure, over)], over, measure)
    if chart is None:
        raise UsageError(f"No step has a finite {shown(measure_words(measure))}.", hint="--measure draws another one.")
    return draw_png(chart) if kind == "png" else f'<?xml version="1.0" encoding="UTF-8"?>\n{draw_svg(chart)}\n'.encode()


def _look_at_rows(record: RunRecord, allow: Collection[str]) -> Report:
    """What `ftui preview --report` finds in the rows as they are now."""
    profile = resolve(record.run.profile).profile
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as lines:
        lines.draw("looking at the rows ...")
        return msgspec.convert(helper.ask("report", on_detail=lines.draw, profile=profile), Report)


def _write(content: bytes, to: Path | None) -> None:
    if to is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        replace_file(to.absolute(), content)
    except OSError as error:
        raise DiskError(f"{to} could not be written: {error}.", hint="--out FILE writes elsewhere.") from error
    print(f"{shown(str(to))} ({size(len(content))})")
