"""A list to choose from, narrowed while typing, with all that is known about the line under the cursor below it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...render.spans import Frame, Line, Span, left, middle, on_cursor, paragraph, spread, thin_line
from ..columns import GAP, Column, share_width, widest

NAME, WORDS = 23, 30  # columns: the least of a name, and of what stands beside it


@dataclass(frozen=True)
class Choice:
    """One line. `value` is what it stands for; `facts` are shown below the list, `group` above its first line."""

    name: str
    words: str = ""
    value: Any = None
    facts: tuple[str, ...] = ()
    group: str = ""
    tone: str = "muted"
    is_current: bool = False


@dataclass(frozen=True)
class PickPage:
    """What the list shows. `typed`: what narrows it; `takes_any`: other text than the choices may be typed too.

    `num_all`: the number of choices before they were narrowed; `hint` is shown where there are none.
    """

    title: str
    choices: Sequence[Choice]
    cursor: int
    typed: str = ""
    takes_any: bool = False
    num_all: int = 0
    hint: str = ""


def pick_title(frame: Frame, page: PickPage) -> list[Line]:
    """The title, and how many lines what is typed leaves."""
    count = f"{len(page.choices)} of {page.num_all} " if page.typed and not page.takes_any else ""
    return [spread(frame.width, [(f" {page.title}", "title")], [(count, "faint")])]


def pick_lines(frame: Frame, page: PickPage) -> list[Line]:
    """As many lines as there is room for, the one under the cursor among them."""
    if not page.choices:
        words = "Nothing here; what is typed is taken as it is." if page.takes_any else "Nothing has these words in it."
        return [[(f"   {page.hint or words}", "muted")]]
    names = Column(NAME, max(NAME, widest(choice.name for choice in page.choices)))
    notes = Column(WORDS, widest(choice.words for choice in page.choices))
    widths = share_width([names, notes], frame.width - 3 - GAP)
    lines: list[Line] = []
    at, group = 0, ""
    for number, choice in enumerate(page.choices):
        if choice.group != group:
            group = choice.group
            lines += [*([[]] if lines else []), [(f" {group}", "faint")]]
        if number == page.cursor:
            at = len(lines)
        lines.append(_line(frame, choice, widths, chosen=number == page.cursor))
    top = max(0, min(at - frame.height // 2, len(lines) - frame.height)) if at >= frame.height - 1 else 0
    return lines[top : top + frame.height]


def _line(frame: Frame, choice: Choice, widths: Sequence[int], *, chosen: bool) -> Line:
    line: Line = [
        (f" {frame.glyphs.cursor if chosen else ' '}", "loss"),
        (frame.glyphs.alive if choice.is_current else " ", "good"),
        (middle(choice.name, widths[0]), "number" if chosen else "text"),
        (" " * GAP + left(choice.words, widths[1]), choice.tone),
    ]
    return on_cursor(spread(frame.width, line), chosen)


def pick_details(frame: Frame, page: PickPage) -> list[Line]:
    """All that is known about the line under the cursor."""
    spans: list[Span] = []
    if page.choices:
        choice = page.choices[min(page.cursor, len(page.choices) - 1)]
        facts = choice.facts or ((choice.words,) if choice.words else ())
        spans = [(choice.name, "title"), *((fact, "muted") for fact in facts)]
    lines = [line for text, style in spans for line in paragraph(text, frame.width, style)]
    return [thin_line(frame), *lines][: frame.height]
