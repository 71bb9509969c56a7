"""Sequences in rows: one each, or as many as fit. As flat arrays, for there may be millions."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of sequences. `members` are all sequences, row after row; row n is members[starts[n] : starts[n + 1]]."""

    members: np.ndarray
    starts: np.ndarray

    @classmethod
    def alone(cls, number: int) -> Self:
        """Every sequence in a row of its own."""
        starts = np.arange(number + 1, dtype=np.int32)
        return cls(starts[:-1], starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> tuple[int, ...]:
        return tuple(self.members[self.starts[number] : self.starts[number + 1]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[number] for number in range(len(self)))

    def flat(self, rows: np.ndarray) -> np.ndarray:
        """All sequences of these rows, one row after the other."""
        sizes = np.diff(self.starts)[rows]
        before = np.cumsum(sizes) - sizes
        places = np.repeat(self.starts[rows] - before, sizes) + np.arange(sizes.sum())
        return np.asarray(self.members[places])

    def lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Tokens of each row (int32), from those of each sequence."""
        totals: np.ndarray = np.add.reduceat(lengths[self.members], self.starts[:-1])
        return totals.astype(np.int32)

    def means(self, amounts: np.ndarray) -> np.ndarray:
        """Mean over the sequences of each row (float64), from what each sequence has."""
        totals: np.ndarray = np.add.reduceat(amounts[self.members].astype(np.float64), self.starts[:-1])
        return totals / np.diff(self.starts)

    def of(self, sequences: np.ndarray) -> "PackedRows":
        """The same rows, with the members numbered by `sequences`: a part of all sequences."""
        return PackedRows(sequences[self.members], self.starts)


def concatenate_rows(parts: Iterable[PackedRows]) -> PackedRows:
    """The rows of all parts, one part after the other."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return PackedRows(np.concatenate([part.members for part in parts]), starts)


def pack(lengths: np.ndarray, room: int) -> PackedRows:
    """Best-fit decreasing: every sequence goes, longest first, to the fullest row that still has room for it.

    Sequences of one length are placed together: a row with space for several takes them one after another, for it is
    the fullest until it has no room left.
    """
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    row_of = np.empty(len(lengths), dtype=np.int32)  # by place in `order`
    spaces = _Spaces(room)
    begin = 0
    for length, count in _runs(lengths[order]):
        placed = 0
        while placed < count:
            space, rows, per_row = spaces.take(length, count - placed)
            size = min(count - placed, len(rows) * per_row)
            numbers = np.repeat(np.frombuffer(rows, dtype=np.int32), per_row)[:size]
            row_of[begin + placed : begin + placed + size] = numbers
            placed += size
            last = size - (len(rows) - 1) * per_row  # the last row may have got fewer
            spaces.put(space - per_row * length, rows[:-1])
            spaces.put(space - last * length, rows[-1:])
        begin += count
    by_row = np.argsort(row_of, kind="stable")
    sizes = np.bincount(row_of, minlength=spaces.num_rows)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return PackedRows(order[by_row], starts)


def _runs(descending: np.ndarray) -> Iterator[tuple[int, int]]:
    """Each length and how many there are of it."""
    lengths, counts = np.unique(descending, return_counts=True)
    return zip(reversed(lengths.tolist()), reversed(counts.tolist()), strict=True)


class _Spaces:
    """Open rows by the tokens they still have room for."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._rows = [array("i") for _ in range(room + 1)]
        self._open_spaces = 0  # a bit for every space that has rows
        self.num_rows = 0

    def take(self, length: int, count: int) -> tuple[int, "array[int]", int]:
        """Rows of the least space that is enough, their space, and how many sequences each of them takes.

        No more of them than `count` sequences need; new ones where no open row has room.
        """
        enough = self._open_spaces >> length
        if not enough:
            per_row = self._room // length
            first, self.num_rows = self.num_rows, self.num_rows - (-count // per_row)
            return self._room, array("i", range(first, self.num_rows)), per_row
        space = length + (enough & -enough).bit_length() - 1
        per_row, rows = space // length, self._rows[space]
        number = min(len(rows), -(-count // per_row))
        taken_rows = rows[-number:]
        taken_rows.reverse()
        del rows[-number:]
        if not rows:
            self._open_spaces &= ~(1 << space)
        return space, taken_rows, per_row

    def put(self, space: int, rows: "array[int]") -> None:
        """Give rows back, each with `space` tokens of room left."""
        if rows:
            self._rows[space].extend(rows)
            self._open_spaces |= 1 << space
