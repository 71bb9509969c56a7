"""The one widget the screens are made of: it shows the lines a drawing room makes, and repaints only what changed.

Few widgets start fast (each costs about 2 ms), and changed spans only are what a slow link can carry: Textual itself
compares nothing. All text passes through `harmless` here and never through markup, whatever it holds.
"""

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from ftui.text import cells

from .glyphs import PLAIN
from .spans import Frame, Line, Paint, clipped
from .theme import Look

Cell = tuple[str, object]


class Canvas(Widget, can_focus=False):
    """Shows what `paint` draws. A style name may say what is behind it: `text@cursor`."""

    def __init__(self, look: Look, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.look = look
        self._paint: Paint | None = None
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._drawn_for = Size(0, 0)

    def show(self, paint: Paint) -> None:
        """Draw this from now on (again whenever the size or the look changes); only what differs is repainted."""
        self._paint = paint
        if self._drawn_for != self.size or not self.size:
            self.refresh()  # it is drawn when the compositor asks for it
            return
        before = self._strips
        self._draw()
        pairs = enumerate(zip(before, self._strips, strict=True))
        changed = [span for y, (old, new) in pairs if old is not new and (span := _span(old, new, y))]
        if changed:
            self.refresh(*changed)

    def wear(self, look: Look) -> None:
        """Another look: everything is drawn anew."""
        self.look = look
        self._lines, self._strips, self._drawn_for = [], [], Size(0, 0)
        self.refresh()

    def on_resize(self) -> None:
        if self._drawn_for != self.size:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._drawn_for != self.size:
            self._lines, self._strips = [], []
            self._draw()
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width, self.look.style("text"))

    def _draw(self) -> None:
        """Make a strip for each row; one whose line is what it was stays the strip it was."""
        width, height = self.size
        lines = [] if self._paint is None else self._paint(Frame(width, height, self.look.glyphs))[:height]
        lines = [*lines, *[[]] * (height - len(lines))]
        before = dict(enumerate(zip(self._lines, self._strips, strict=True)))
        self._strips = [
            before[y][1] if y in before and before[y][0] == line else self._strip(line, width)
            for y, line in enumerate(lines)
        ]
        self._lines, self._drawn_for = lines, self.size

    def _strip(self, line: Line, width: int) -> Strip:
        segments, used = [], 0
        is_ascii = self.look.glyphs.rule.isascii()
        for own, style in clipped(line, width):
            text = own.translate(PLAIN) if is_ascii else own
            name, _, on = style.partition("@")
            segments.append(Segment(text, self.look.style(name, on=on or "background")))
            used += cells(text)
        behind = line[-1][1].partition("@")[2] if line else ""
        if used < width:
            segments.append(Segment(" " * (width - used), self.look.style("text", on=behind or "background")))
        return Strip(segments, width)


def _span(old: Strip, new: Strip, y: int) -> Region | None:
    """The columns of a row in which two strips differ."""
    if old == new:
        return None
    before, after = _cells(old), _cells(new)
    if before == after:
        return None
    if not _is_plain(before) or not _is_plain(after) or len(before) != len(after):
        return Region(0, y, new.cell_length, 1)
    first = next(i for i, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
    last = next(i for i in range(len(after) - 1, -1, -1) if before[i] != after[i])
    return Region(first, y, last - first + 1, 1)


def _is_plain(row: list[Cell]) -> bool:
    """Whether every character takes one column, by our count and by that of the library which would cut the row."""
    return all(
        character.isascii() or cells(character) == cell_len(character) == 1 for character in {sign for sign, _ in row}
    )


def _cells(strip: Strip) -> list[Cell]:
    return [(character, segment.style) for segment in strip for character in segment.text]
