"""What the row ledger says: the step or the course of rows above, its rows as a table, the one under the cursor."""

from collections.abc import Sequence

from ftui.helper.blame_facts import CourseRow, LedgerRow, RowCourses, StepBlame, Verdict
from ftui.helper.blame_text import (
    COURSE_HEADINGS,
    STEP_HEADINGS,
    course_lines,
    course_rows,
    step_lines,
    step_rows,
)

from ...render.spans import Frame, Line, around, left, middle, on_cursor, paragraph, right, spread, thin_line
from ..columns import GAP, Column, share_width, widest

SHORTEST = 14  # columns of a row's place
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "rows": ("the data", "warn"), "model": ("the model", "bad"), "no spike": ("nothing unusual", "good"),
    "unclear": ("unclear", "muted"),
}  # fmt: skip
COURSE_WORDS = {"never_learned": "never learned", "forgotten": "forgotten", "learned_at_once": "learned at once"}


def blame_title(frame: Frame, run: str, found: StepBlame | RowCourses | None, doing: str) -> list[Line]:
    """What is looked at and what follows from it; as many lines of it as there is room for."""
    if found is None:
        return [spread(frame.width, [(f" {run}", "title")], [(f"{doing} ", "loss")])]
    if isinstance(found, StepBlame):
        what, (word, style), told = f"step {found.step:,}", VERDICTS[found.verdict], step_lines(found)
        told[0] = told[0].partition(": ")[2]
    else:
        what, word, style = COURSE_WORDS[found.course], f"{found.num_found:,} rows", "number"
        told = course_lines(found)
    side: Line = [(f"{doing} ", "loss")] if doing else [(f"{word} ", style)]
    lines = [spread(frame.width, [(f" {run}", "title"), (f"  {what}", "text")], side)]
    for line in told:
        told_style = "muted" if line.startswith("note: ") else "text"
        lines += paragraph(line[:1].upper() + line[1:], frame.width, told_style)
    return lines[: frame.height]


def blame_table(frame: Frame, found: StepBlame | RowCourses | None, cursor: int, problem: str) -> list[Line]:
    """As many rows as there is room for, the most to blame first, the one under the cursor among them."""
    if problem or found is None:
        return [[], *paragraph(problem or "Reading the ledger ...", frame.width, "warn" if problem else "muted")]
    if isinstance(found, StepBlame):
        headings, rows = STEP_HEADINGS, step_rows(found)
    else:
        headings, rows = COURSE_HEADINGS, course_rows(found)
    if not rows:
        return [[], *paragraph("There is no such row.", frame.width, "muted")]
    wishes = [widest([name, *(row[at] for row in rows)]) for at, name in enumerate(headings)]
    columns = [Column(SHORTEST if at == 0 else wish, wish) for at, wish in enumerate(wishes)]
    widths = share_width(columns, frame.width - 2 - GAP * (len(columns) - 1))
    lines: list[Line] = [[("  " + _joined(headings, widths), "faint")]]
    for row, chosen in around(rows, cursor, frame.height - 1):
        sign = frame.glyphs.cursor if chosen else " "
        lines.append(on_cursor([(f"{sign} ", "loss"), (_joined(row, widths), "number" if chosen else "text")], chosen))
    return lines


def _joined(texts: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        right(text, width) if at else middle(text, width)
        for at, (text, width) in enumerate(zip(texts, widths, strict=True))
    )
    return (" " * GAP).join(aligned)


def blame_details(frame: Frame, row: LedgerRow | CourseRow | None, num_more: int) -> list[Line]:
    """The whole place of the row under the cursor, and its course in words."""
    if row is None:
        return []
    place = f"Sequence {row.number + 1:,}; where it stands is not known" if row.where is None else str(row.where)
    part = f", part {row.part} of {row.num_parts}" if row.num_parts > 1 else ""
    lines = [thin_line(frame), *paragraph(f"{place}{part}", frame.width, "title")]
    words = _course_of(row) if isinstance(row, CourseRow) else _told(row)
    lines += paragraph(words, frame.width, "text")
    if num_more:
        lines.append([(left(f" {num_more:,} more rows: w writes all of them.", frame.width), "faint")])
    return lines[: frame.height]


def _told(row: LedgerRow) -> str:
    if row.loss is None:
        return "Its loss is NaN or infinite."
    parts = [f"Loss {row.loss:.3f}"]
    if row.before_step is not None and row.before is not None:
        parts.append(f"{row.before:.3f} when it was seen last, in step {row.before_step:,}")
    elif row.before_step is None:
        parts.append("seen for the first time")
    if row.base is not None:
        parts.append(f"{row.base:.3f} under the base model")
    return "; ".join(parts) + "."


def _course_of(row: CourseRow) -> str:
    second = "" if row.second is None else f", {row.second:.3f} at its second sight"
    return (
        f"Seen {row.times:,} times: {row.first:.3f} at first{second}, {row.best:.3f} at its best, {row.last:.3f} now."
    )
