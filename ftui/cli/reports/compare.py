"""`ftui compare A B ...`: runs beside each other, as text, as JSON or on a screen."""

import shutil
from collections.abc import Iterable, Sequence

import msgspec

from ftui.cli.terminal import table
from ftui.errors import FINISHED
from ftui.reports.run_curves import read_run_curves
from ftui.reports.run_differences import ComparedLine, RunComparison, check_number, compare, tables
from ftui.reports.run_record import read_records
from ftui.runs.run_folder import find_run
from ftui.text import cells, escape_document, shown


def compare_runs(names: Sequence[str], as_json: bool) -> int:
    """Print how the runs did and what differs between them.

    Raises:
        FtuiError: there is no such run, or they are fewer than two or more than six.
    """
    check_number(len(names))
    records = read_records([find_run(name) for name in names])
    comparison = compare(records, [read_run_curves(record) for record in records])
    if as_json:
        print(escape_document(msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode()))
    else:
        print("\n".join(comparison_lines(comparison, shutil.get_terminal_size().columns)))
    return FINISHED


def comparison_lines(comparison: RunComparison, width: int) -> Iterable[str]:
    """The tables one below the other, the warnings first."""
    for warning in comparison.warnings:
        yield f"warning: {shown(warning)}"
    if comparison.warnings:
        yield ""
    for title, lines in tables(comparison):
        yield from _table(title, comparison.runs, lines, width)
        yield ""
    if not comparison.differences:
        yield "Nothing differs between their profiles, data, machines and versions."
    else:
        yield f"{comparison.num_same} other values are the same."


def _table(title: str, runs: Sequence[str], lines: Sequence[ComparedLine], width: int) -> Iterable[str]:
    """A column for each run; where they do not fit beside each other, a line for each."""
    rows = [[title, *map(shown, runs)], *([line.name, *map(shown, line.values)] for line in lines)]
    beside = table(rows, ())
    if max(map(cells, beside)) <= width:
        return beside
    stacked = [title]
    for name, *values in rows[1:]:
        stacked += [f"  {name}", *table([(f"    {run}", value) for run, value in zip(runs, values, strict=True)], ())]
    return stacked
