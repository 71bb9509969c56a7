"""What commands print: lines with one below them that is drawn over, and rows of text as aligned columns."""

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import TextIO

from ftui.text import cells, cut, cut_middle, shown

SHORTEST = 8  # columns of what gives way


def has_screen() -> bool:
    """Whether there is a terminal that screens can be drawn on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class LiveOutput:
    """A stream of plain lines and, on a terminal, one line below them that is drawn over.

    As a context it takes that line away at its end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = ""

    def __enter__(self) -> "LiveOutput":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def print(self, text: str) -> None:
        """Write a line above the one that is drawn over."""
        self.clear()
        self._stream.write(f"{shown(text, newlines=True)}\n")
        self._stream.flush()

    def draw(self, text: str) -> None:
        """Show `text` on the line that is drawn over, cut to the terminal's width."""
        text = cut(shown(text), shutil.get_terminal_size().columns - 1)
        if self.live and text != self._drawn:
            self._stream.write(f"\r{text}\x1b[K")
            self._stream.flush()
            self._drawn = text

    def clear(self) -> None:
        """Take the line that is drawn over away."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""


def table(rows: Sequence[Sequence[str]], numbers: Collection[int], *, width: int | None = None) -> list[str]:
    """Columns two blanks apart, in at most `width`: the first gives way, then the second; the numbers never do.

    Args:
        numbers: columns that stand against their right edge.
    """
    widths = [max(cells(text) for text in column) for column in zip(*rows, strict=True)]
    if width is not None:
        for column in (0, 1):
            over = sum(widths) + 2 * (len(widths) - 1) - width
            widths[column] = min(widths[column], max(SHORTEST, widths[column] - over))
    return [_line(texts, widths, numbers) for texts in rows]


def _line(texts: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> str:
    parts = []
    for column, (text, width) in enumerate(zip(texts, widths, strict=True)):
        text = (cut if column else cut_middle)(text, width)
        blanks = " " * (width - cells(text))
        parts.append(blanks + text if column in numbers else text + blanks)
    return "  ".join(parts).rstrip()
