"""How the columns of a table share the width there is."""

from collections.abc import Iterable, Sequence

import msgspec

from ftui.text import cells

from ..render.spans import harmless

GAP = 2  # between two columns


class Column(msgspec.Struct, frozen=True):
    """What a column asks for, in columns of the terminal.

    Attributes:
        least: below it nothing of it can be read.
        wish: its longest text.
        grows: whether more than that is of use, as it is for a curve.
    """

    least: int
    wish: int
    grows: bool = False


def share_width(columns: Sequence[Column], room: int) -> list[int]:
    """A width for each column, together at most `room`. No column is cut while another one has more than it needs.

    Each has its least (the last ones less, where there is not even room for that). What is left goes in equal parts to
    those that wish for more, and what nobody needs to those that grow.
    """
    widths: list[int] = []
    for column in columns:
        widths.append(max(0, min(column.least, column.wish, room - sum(widths))))
    free = room - sum(widths)
    while free > 0 and (cut := [at for at, column in enumerate(columns) if widths[at] < column.wish]):
        for at in cut:
            more = min(max(1, free // len(cut)), columns[at].wish - widths[at], room - sum(widths))
            widths[at] += more
        free = room - sum(widths)
    growing = [at for at, column in enumerate(columns) if column.grows]
    for number, at in enumerate(growing):
        widths[at] += (room - sum(widths)) // (len(growing) - number)
    return widths


def widest(texts: Iterable[str]) -> int:
    """Columns that the longest of them takes."""
    return max((cells(harmless(text)) for text in texts), default=0)
