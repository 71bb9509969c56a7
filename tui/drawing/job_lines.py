"""Long work: what it is going to write, what is done, how far it is and for how long, what came of it."""

from collections.abc import Sequence

from ftui.helper.progress_text import share_of
from ftui.launch.long_job import Rows
from ftui.text import cells, wrapped

from ..render.spans import Frame, Line, harmless, heading, labelled, left, paragraph, spread
from ..state.job_course import PHASE_WORDS, JobCourse, Part, Phase
from .columns import GAP
from .wording import clock

STYLES: dict[Phase, str] = {
    "checking": "muted", "ready": "text", "working": "loss", "stopping": "warn", "done": "good", "failed": "bad",
    "stopped": "warn",
}  # fmt: skip
HEAD = 24  # columns: the most of what a line is about


def job_title(frame: Frame, course: JobCourse) -> list[Line]:
    """What is done to what, and how it stands."""
    word = PHASE_WORDS.get(course.phase, course.phase)
    return [spread(frame.width, [(f" {course.title}", "title")], [(f"{word} ", STYLES[course.phase])]), []]


def job_lines(frame: Frame, course: JobCourse, now: float) -> list[Line]:
    """All there is to say, from the plan to the result."""
    lines = table_lines(frame, course.plan)
    if course.phase == "checking":
        lines.append([(" looking at what there is ...", "muted")])
    if course.parts:
        lines += [[], heading(frame, "progress", "muted")]
        lines += [_past_line(frame, part) for part in course.past]
    if (part := course.current) is not None:
        lines += _current_lines(frame, part, now)
    if course.phase == "stopped":
        lines += [[], *paragraph("Stopped. What was half written is removed.", frame.width, "warn")]
    if (problem := course.problem) is not None:
        lines += [[], *paragraph(problem.message, frame.width, "bad"), *paragraph(problem.hint, frame.width, "text")]
    if course.result:
        lines += [[], heading(frame, "result", "good"), *table_lines(frame, course.result)]
    return lines


def table_lines(frame: Frame, rows: Rows) -> list[Line]:
    """Two columns wrap in the second one; of more, each is as wide as its longest text, and the last is cut."""
    if not rows:
        return []
    first = min(HEAD, max(cells(harmless(row[0])) for row in rows))
    if len(rows[0]) == 2:
        return [
            line
            for label, text in rows
            for line in labelled([(f" {left(label, first)}{' ' * GAP}", "muted")], text, frame.width, "text")
        ]
    widths = [max(cells(harmless(text)) for text in column) for column in zip(*rows, strict=True)][1:]
    return [_columns(row, first, widths, "muted" if number == 0 else "text") for number, row in enumerate(rows)]


def _columns(row: Sequence[str], first: int, widths: Sequence[int], style: str) -> Line:
    line: Line = [(f" {left(row[0], first)}", "muted")]
    return [*line, *((" " * GAP + left(text, width), style) for text, width in zip(row[1:], widths, strict=True))]


def _past_line(frame: Frame, part: Part) -> Line:
    return spread(frame.width, [(f" {part.name}", "muted")], [(f"{clock(part.seconds)} ", "faint")])


def _current_lines(frame: Frame, part: Part, now: float) -> list[Line]:
    """The text of the part that is being done, below it how much of it is."""
    text, *more = wrapped(part.text, frame.width - 10)
    lines = [spread(frame.width, [(f" {text}", "text")], [(f"{clock(now - part.begun)} ", "faint")])]
    lines += [[(f" {line}", "text")] for line in more]
    if (share := share_of(part.text)) is not None:
        percent, full = f" {share:4.0%} ", frame.glyphs.full
        room = max(0, frame.width - 1 - len(percent))
        done = round(share * room)
        lines.append([(" ", "text"), (full * done, "loss"), (full * (room - done), "rule"), (percent, "number")])
    return lines
