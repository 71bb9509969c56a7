"""The one widget the screens are made of: it shows the lines a drawing room makes, and repaints only what changed.

Few widgets start fast (each costs about 2 ms), and changed spans only are what a slow link can carry: Textual itself
compares nothing. All text passes through `harmless` here and never through markup, whatever it holds.
"""

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from ftui.text import cells, is_narrow

from .glyphs import PLAIN
from .spans import Frame, Line, Paint, clipped
from .theme import Look


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
    """The columns of a row in which two strips differ. Equal styles are mostly one: comparing them is slow."""
    before, after = old.text, new.text
    if not is_narrow(before) or not is_narrow(after) or len(before) != len(after):
        return None if old == new else Region(0, y, new.cell_length, 1)
    cells_of_both = zip(before, after, _styles(old), _styles(new), strict=True)
    changed = [
        x for x, (a, b, style, other) in enumerate(cells_of_both) if a != b or (style is not other and style != other)
    ]
    return Region(changed[0], y, changed[-1] - changed[0] + 1, 1) if changed else None


def _styles(strip: Strip) -> list[object]:
    """The style of each character."""
    return [style for segment in strip for style in [segment.style] * len(segment.text)]
