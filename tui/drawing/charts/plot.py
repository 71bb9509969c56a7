"""A plot as a grid of cells, each a sign and its style: later layers are put over earlier ones."""

from collections.abc import Mapping

from ...render.spans import Line, joined

BACKGROUND = "rule"


class Plot:
    """Row 0 is the highest. Cells that a curve or a mark stands in are taken; lines behind them take none."""

    def __init__(self, width: int, rows: int) -> None:
        self.width = width
        self.rows = rows
        self._signs = [[" "] * width for _ in range(rows)]
        self._styles = [[BACKGROUND] * width for _ in range(rows)]
        self._taken: set[tuple[int, int]] = set()

    def put(self, row: int, column: int, text: str, style: str, *, behind: bool = False) -> None:
        """Write text over what is there; it must fit."""
        for at, sign in enumerate(text, column):
            self._signs[row][at] = sign
            self._styles[row][at] = style
            if not behind:
                self._taken.add((row, at))

    def put_all(self, cells: Mapping[tuple[int, int], str], style: str) -> None:
        """Write many single cells."""
        signs, styles = self._signs, self._styles
        for (row, column), sign in cells.items():
            signs[row][column] = sign
            styles[row][column] = style
        self._taken.update(cells)

    def is_free(self, row: int, column: int, width: int) -> bool:
        """Whether these cells are in the plot, and nothing but lines in the background is in them."""
        if not (0 <= row < self.rows and 0 <= column <= self.width - width):
            return False
        return not any((row, at) in self._taken for at in range(column, column + width))

    def line(self, row: int) -> Line:
        """The cells of a row, those of one style in one piece."""
        return joined(zip(self._signs[row], self._styles[row], strict=True))
