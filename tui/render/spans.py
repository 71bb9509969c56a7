"""Lines as tui/drawing makes them: pieces of text, each with the name of a style. No Textual in here.

Canvas (tui/render/canvas.py) makes all text harmless, so drawing functions take names, log lines and rows as they come.
Widths are columns of the terminal, not characters.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec

from ftui.text import cells, cut, cut_middle, shown
from ftui.text import wrapped as wrapped

from .glyphs import Glyphs

Span = tuple[str, str]
"""Text and the name of its style (a key of `ftui.tui.render.theme.Palette`)."""

Line = list[Span]
T = TypeVar("T")


class Frame(msgspec.Struct, frozen=True):
    """The room there is to draw in, in columns and rows, and the signs to draw with."""

    width: int
    height: int
    glyphs: Glyphs


Paint = Callable[[Frame], list[Line]]
"""Draws into a frame: at most `height` lines, each exactly or at most `width` wide."""


_JOINERS = dict.fromkeys([0x200D, 0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)])
"""What makes one picture of several: terminals do not agree on its width, so pictures are shown in their parts."""


def harmless(text: str) -> str:
    """The text with all control characters visible; nothing to do for most of it."""
    return text if text.isascii() and text.isprintable() else shown(text).translate(_JOINERS)


def width_of(line: Sequence[Span]) -> int:
    return sum(cells(harmless(text)) for text, _ in line)


def spread(width: int, left: Sequence[Span], right: Sequence[Span] = ()) -> Line:
    """Left and right part with blanks between; where both do not fit, the left one is cut."""
    right = clipped(right, width)
    room = width - width_of(right)
    start = clipped(left, max(0, room - 1 if right else room))
    return [*start, (" " * max(0, room - width_of(start)), "text"), *right]


def clipped(line: Sequence[Span], width: int) -> Line:
    """The line in at most `width` columns, ending in `…` where something was cut away."""
    spans: Line = []
    for text, style in line:
        text = harmless(text)
        size = cells(text)
        if size > width:
            if width > 0:
                spans.append((cut(text, width), style))
            elif spans:
                spans[-1] = (cut(spans[-1][0] + " ", cells(spans[-1][0])), spans[-1][1])
            break
        spans.append((text, style))
        width -= size
    return spans


def left(text: str, width: int) -> str:
    """The text cut and filled to exactly `width` columns."""
    text = cut(harmless(text), width)
    return text + " " * (width - cells(text))


def middle(text: str, width: int) -> str:
    """A name, a path or a value cut in its middle and filled to exactly `width` columns: both of its ends say much."""
    text = cut_middle(harmless(text), width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """The same, against the right edge."""
    text = cut(harmless(text), width)
    return " " * (width - cells(text)) + text


def paragraph(text: str, width: int, style: str, *, indent: int = 1) -> list[Line]:
    """The text wrapped between two margins of `indent` columns."""
    return [[(" " * indent + line, style)] for line in wrapped(text, width - 2 * indent)]


def labelled(head: Line, text: str, width: int, style: str) -> list[Line]:
    """The text behind `head`; its further lines stand below its first one."""
    column = width_of(head)
    first, *rest = wrapped(text, max(10, width - column - 1))
    return [[*head, (first, style)], *([(" " * column, "text"), (line, style)] for line in rest)]


def thin_line(frame: Frame) -> Line:
    """A rule between margins of one column."""
    return [(" " + frame.glyphs.rule * (frame.width - 2), "rule")]


def heading(frame: Frame, title: str, style: str = "title", *, note: str = "") -> Line:
    """A title, a thin line, and a faint note at its right end."""
    head: Line = [(f" {title} ", style)]
    room = max(0, frame.width - width_of(head) - cells(note) - 1)
    return [*head, (frame.glyphs.rule * room, "rule"), *([(f" {note}", "faint")] if note else [])]


def around(items: Sequence[T], cursor: int, height: int) -> list[tuple[T, bool]]:
    """As many of the items as fit, the one under the cursor among them: each with whether it is that one."""
    top = max(0, min(cursor - height // 2, len(items) - height))
    return [(item, number == cursor) for number, item in enumerate(items[top : top + height], top)]


def on_cursor(line: Sequence[Span], chosen: bool = True) -> Line:
    """The line as the one under the cursor, if it is `chosen`."""
    return [(text, f"{style}@cursor") if chosen else (text, style) for text, style in line]


def joined(spans: Iterable[Span]) -> Line:
    """Neighbours of the same style as one."""
    line: Line = []
    start, (texts, styles) = 0, tuple(zip(*spans, strict=True)) or ((), ())
    for style, group in groupby(styles):
        end = start + len(list(group))
        line.append(("".join(texts[start:end]), style))
        start = end
    return line
