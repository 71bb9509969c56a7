"""`ftui blame RUN [STEP]`: the rows behind a step, or how rows were learned."""

import shutil
import sys
from collections.abc import Collection
from contextlib import closing
from typing import Any

import msgspec

from ftui.cli.terminal import LiveOutput, table
from ftui.errors import FINISHED, UsageError
from ftui.helper.blame_facts import Course, RowCourses, StepBlame
from ftui.helper.blame_text import (
    COURSE_HEADINGS,
    NUMBERS,
    STEP_HEADINGS,
    as_csv,
    course_lines,
    course_rows,
    step_lines,
    step_rows,
)
from ftui.helper.client import Helper
from ftui.profile.layers import resolve
from ftui.runs.run_folder import find_run
from ftui.text import escape_document, shown, wrapped

SHOWN_ROWS = 10
ALL_ROWS = 1 << 31


def blame(
    name: str, step: int | None, course: Course | None, num_rows: int | None, as_csv_rows: bool, as_json: bool,
    allow: Collection[str],
) -> int:  # fmt: skip
    """Print it as text, as JSON or as CSV; these two have all rows unless a number is given.

    Raises:
        FtuiError: the run keeps no ledger, it has no such step, or has not seen its rows often enough.
    """
    if num_rows is not None and num_rows < 1:
        raise UsageError(f"--rows {num_rows}: fewer than one.", hint="Without it, there are ten.")
    if course is not None and step is not None:
        raise UsageError("A step, or how rows were learned over all of them: not both.")
    run = find_run(name)
    run.check()
    profile = resolve(run.profile).profile
    most = num_rows or (ALL_ROWS if as_csv_rows or as_json else SHOWN_ROWS)
    asked: dict[str, Any] = {"profile": profile, "folder": str(run.folder.absolute()), "most": most}
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as output:
        output.draw("reading the ledger ...")
        if course is None:
            answer = helper.ask("blame_step", on_detail=output.draw, step=step, **asked)
            found: StepBlame | RowCourses = msgspec.convert(answer, StepBlame)
        else:
            answer = helper.ask("list_courses", on_detail=output.draw, course=course, **asked)
            found = msgspec.convert(answer, RowCourses)
    if as_json:
        print(escape_document(msgspec.json.format(msgspec.json.encode(found), indent=2).decode()))
    elif as_csv_rows:
        print(as_csv(found.rows), end="")
    else:
        print("\n".join(_lines(found)))
    return FINISHED


def _lines(found: StepBlame | RowCourses) -> list[str]:
    width = shutil.get_terminal_size().columns
    if isinstance(found, StepBlame):
        told, headings, rows, number = step_lines(found), STEP_HEADINGS, step_rows(found), found.num_rows
    else:
        told, headings, rows, number = course_lines(found), COURSE_HEADINGS, course_rows(found), found.num_found
    lines = [part for line in told for part in wrapped(shown(line), width)]
    if rows:
        lines += ["", *table([headings, *([shown(cell) for cell in row] for row in rows)], NUMBERS, width=width)]
    if number > len(rows):
        lines.append(f"{number - len(rows):,} more: --rows N shows more, --csv and --json all.")
    return lines
