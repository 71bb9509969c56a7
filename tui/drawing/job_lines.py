"""Long work: what it is going to write, what is done, how far it is and for how long, what came of it."""

from ftui.helper.progress_text import share_of
from ftui.launch.long_job import Rows
from ftui.text import wrapped

from ..render.spans import Frame, Line, heading, labelled, left, paragraph, spread, width_of
from ..state.job_course import PHASE_WORDS, JobCourse, Part, Phase
from .columns import GAP, widest
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
    """All there is to say: the plan, then how it ended, so that it is seen without scrolling, or how far it is."""
    lines = table_lines(frame, course.plan)
    if course.phase == "checking":
        lines.append([(" looking at what there is ...", "muted")])
    if course.phase == "stopped":
        lines += [[], *paragraph(f"Stopped. {course.when_stopped}", frame.width, "warn")]
    if (problem := course.problem) is not None:
        lines += [[], *paragraph(problem.message, frame.width, "bad"), *paragraph(problem.hint, frame.width, "text")]
    if course.result:
        lines += [[], heading(frame, "result", "good"), *table_lines(frame, course.result)]
    if course.parts:
        lines += [[], heading(frame, "progress", "muted")]
        lines += [_past_line(frame, part) for part in course.past]
    if (part := course.current) is not None:
        lines += _current_lines(frame, part, now)
    return lines


def table_lines(frame: Frame, rows: Rows) -> list[Line]:
    """Two columns wrap in the second one. Of more, each is as wide as its longest text, and those that do not fit stand
    on a line of their own below."""
    if not rows:
        return []
    first = min(HEAD, widest(row[0] for row in rows))
    if len(rows[0]) == 2:
        return [
            line
            for label, text in rows
            for line in labelled([(f" {left(label, first)}{' ' * GAP}", "muted")], text, frame.width, "text")
        ]
    room = frame.width - first - 2
    widths = [min(widest(column), room - GAP) for column in zip(*(row[1:] for row in rows), strict=True)]
    lines: list[Line] = []
    for row in rows:
        line: Line = [(f" {left(row[0], first)}", "muted")]
        for text, width in zip(row[1:], widths, strict=True):
            if width_of(line) + GAP + width >= frame.width:
                lines.append(line)
                line = [(" " * (first + 1), "muted")]
            line.append((" " * GAP + left(text, width), "text"))
        lines.append(line)
    return [line for line in lines if any(text.strip() for text, _ in line)]


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
