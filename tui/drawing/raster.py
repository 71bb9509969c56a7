"""Dots in braille cells: 2 by 4 to a cell. Row 0 is the top; a dot is addressed by its column and row of dots."""

BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Raster:
    """`width` x `height` cells, all empty."""

    def __init__(self, width: int, height: int) -> None:
        self.cells = [[0] * width for _ in range(height)]
        self._columns, self._rows = width * 2, height * 4

    def column(self, x: int, top: int, bottom: int) -> None:
        """Dots from `top` to `bottom`, both included, in one column; what is outside is left out."""
        if not 0 <= x < self._columns:
            return
        for y in range(max(0, top), min(self._rows - 1, bottom) + 1):
            self.cells[y >> 2][x >> 1] |= BITS[y & 3][x & 1]

    def line(self, points: list[tuple[int, int]], thick: int) -> None:
        """Connected points (columns rising), `thick` dots high."""
        previous: tuple[int, int] | None = None
        for x, y in points:
            if previous is None:
                self.column(x, y, y + thick - 1)
            else:
                self._segment(previous, (x, y), thick)
            previous = x, y

    def _segment(self, start: tuple[int, int], end: tuple[int, int], thick: int) -> None:
        (x0, y0), (x1, y1) = start, end
        before = y0
        for x in range(x0 + 1, x1 + 1):
            y = y0 + round((y1 - y0) * (x - x0) / (x1 - x0))
            top, bottom = min(y, before + (y > before)), max(y, before - (y < before))
            self.column(x, top, bottom + thick - 1)
            before = y
