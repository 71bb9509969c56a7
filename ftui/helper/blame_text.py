"""What the row ledger says, in words and columns: the same in commands and on screens."""

import csv
import io
from collections.abc import Iterable, Sequence

from ftui.dataset.locations import short_names
from ftui.dataset.report import RowLocation
from ftui.helper.blame_facts import COURSES, CourseRow, LedgerRow, RowCourses, StepBlame

NOT_KNOWN = "-"
STEP_HEADINGS = ("row", "of the loss", "loss", "before", "base", "tokens")
COURSE_HEADINGS = ("row", "first", "second", "best", "last", "seen")
NUMBERS = range(1, 6)
"""The columns that are numbers."""


def step_lines(blame: StepBlame) -> list[str]:
    """What the step is, how usual that is, and what follows from its rows."""
    loss = "NaN or infinite" if blame.loss is None else f"{blame.loss:.4f}"
    lines = [f"Step {blame.step}: loss {loss}"]
    if blame.usual is not None:
        lines[0] += f", usual {blame.usual:.4f} ± {blame.noise:.4f}"
        if blame.loss is not None and blame.noise:
            lines[0] += f" ({(blame.loss - blame.usual) / blame.noise:+.1f} sigma)"
    lines.append(blame.words)
    if blame.lasts:
        steps = "step is" if blame.lasts == 1 else f"{blame.lasts} steps are"
        lines.append(f"The next {steps} above usual, too.")
    return [*lines, *(f"note: {note}" for note in blame.notes)]


def step_rows(blame: StepBlame) -> list[Sequence[str]]:
    """The rows as a table under `STEP_HEADINGS`."""
    names = _names(blame.rows)
    return [
        (
            row_name(row, names), NOT_KNOWN if row.share is None else f"{row.share:.1%}",
            "not finite" if row.loss is None else f"{row.loss:.3f}", _known(row.before), _known(row.base),
            f"{row.count:,}" if blame.counts_tokens else NOT_KNOWN,
        )
        for row in blame.rows
    ]  # fmt: skip


def course_lines(found: RowCourses) -> list[str]:
    """How many rows there are of that kind, and which kind it is."""
    rows = f"{found.num_found:,} of {found.num_rows:,} rows"
    seen = f"The ledger has each row up to {found.most_times} times."
    return [f"{rows}, {COURSES[found.course]}. {seen}", *(f"note: {note}" for note in found.notes)]


def course_rows(found: RowCourses) -> list[Sequence[str]]:
    """The rows as a table under `COURSE_HEADINGS`."""
    names = _names(found.rows)
    return [
        (
            row_name(row, names), f"{row.first:.3f}", _known(row.second), f"{row.best:.3f}", f"{row.last:.3f}",
            str(row.times),
        )
        for row in found.rows
    ]  # fmt: skip


def row_name(row: LedgerRow | CourseRow, names: dict[str, str]) -> str:
    """`rows.jsonl:17`, with its part where it has several; the number of its sequence where it has no place."""
    if row.where is None:
        return f"sequence {row.number + 1:,}"
    part = f" part {row.part}" if row.num_parts > 1 else ""
    where = row.where
    return str(RowLocation(names.get(where.file, where.file), where.number, where.unit)) + part


def as_csv(rows: Sequence[LedgerRow] | Sequence[CourseRow]) -> str:
    """Every field of the rows; the place is file, unit and number."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    kind = type(rows[0]) if rows else LedgerRow
    fields = [name for name in kind.__struct_fields__ if name not in ("where", "number")]
    writer.writerow(["file", "unit", "place", "sequence", *fields])
    for row in rows:
        where = row.where
        place = ("", "", "") if where is None else (where.file, where.unit, where.number)
        writer.writerow([*place, row.number + 1, *(getattr(row, name) for name in fields)])
    return output.getvalue()


def _names(rows: Iterable[LedgerRow | CourseRow]) -> dict[str, str]:
    return short_names({row.where.file for row in rows if row.where is not None})


def _known(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.3f}"
