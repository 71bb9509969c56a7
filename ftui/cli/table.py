"""Rows of text as aligned columns, in the width of the terminal."""

from collections.abc import Sequence

from ftui.text import cells, cut

SHORTEST = 8  # of what gives way


def table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns two blanks apart in at most `width`: the first gives way, then the second; the numbers never do."""
    widths = [max(cells(text) for text in column) for column in zip(*rows, strict=True)]
    for column in (0, 1):
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = min(widths[column], max(SHORTEST, widths[column] - over))
    return [_line(cells_of_row, widths) for cells_of_row in rows]


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    name, phase, *numbers = (cut(text, width) for text, width in zip(texts, widths, strict=True))
    parts = [name + " " * (widths[0] - cells(name)), phase.ljust(widths[1])]
    parts += [number.rjust(width) for number, width in zip(numbers, widths[2:], strict=True)]
    return "  ".join(parts).rstrip()
