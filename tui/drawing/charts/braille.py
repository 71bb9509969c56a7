"""Plots in braille: each cell is two dots wide and four high. Without braille a cell is drawn whole where a dot is.

A column of dots is one integer: bit 0 is the lowest dot.
"""

from collections.abc import Sequence

DOTS_WIDE, DOTS_HIGH = 2, 4
_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of the left and the right half of a cell, from below
_LEFT, _RIGHT = (
    tuple(sum(bit for place, bit in enumerate(bits) if pattern >> place & 1) for pattern in range(16)) for bits in _BITS
)
_CHARACTERS = tuple(chr(0x2800 + bits) for bits in range(256))

Cells = dict[tuple[int, int], str]
"""The characters of a plot by row (0 is the highest) and column; what is not in it is empty."""


def stroke(low: int, high: int) -> int:
    """A column with all dots from `low` to `high`."""
    return ((2 << (high - low)) - 1) << low


def cells(columns: Sequence[int], rows: int, whole: str | None = None) -> Cells:
    """The cells of two columns of dots each; `whole`: the sign of every cell in place of braille."""
    signs: Cells = {}
    for column in range(len(columns) // DOTS_WIDE):
        left, right = columns[DOTS_WIDE * column], columns[DOTS_WIDE * column + 1]
        row = rows - 1
        while left or right:
            if left & 15 or right & 15:
                signs[row, column] = whole or _CHARACTERS[_LEFT[left & 15] | _RIGHT[right & 15]]
            left >>= DOTS_HIGH
            right >>= DOTS_HIGH
            row -= 1
    return signs
