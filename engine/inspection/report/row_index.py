"""Rows of several stores as one list, and where each of them stands in its file."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ftui.dataset.report import RowLocation

from ...data.files.blocks import unit_of
from ...data.files.streams import printable
from ...data.sources import ResolvedSource
from ...data.stores.store import Store, read_column


class RowIndex:
    """The rows of all sources, one source after the other; `sources` and `stores` belong together, one by one.

    `bounds`: the first row of each source, and the number of all.
    """

    def __init__(self, sources: Sequence[ResolvedSource], stores: Sequence[Store]) -> None:
        self._sources = list(sources)
        self._stores = list(stores)
        self.bounds = np.concatenate([[0], np.cumsum([len(store.facts) for store in stores], dtype=np.int64)])
        self._spans: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def column(self, name: str) -> np.ndarray:
        """One of the `FACTS` of each row."""
        return read_column(self._stores, name)

    def where(self, row: int) -> RowLocation:
        """Where a row stands in its file."""
        source, number = self.place_of(row)
        fact = self._stores[source].facts[number]
        place = self._sources[source].places[int(fact["file"])]
        return RowLocation(printable(place), int(fact["place"]), unit_of(place))

    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of each row begin and end in its store (int64): those of all its sequences together."""
        if self._spans is None:
            parts = [_spans(store) for store in self._stores]
            self._spans = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        return self._spans

    def tokens_of(
        self, rows: np.ndarray, most: int, *, from_both_ends: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first tokens of each of these rows after one another, which are trained on, and how many of each row.

        `from_both_ends`: of a row that has more than `most`, half of them are the last ones.
        """
        begins, ends = (bound[rows] for bound in self.spans())
        sizes = np.minimum(ends - begins, most)
        heads = np.where((ends - begins > most) & from_both_ends, most // 2, sizes)
        owners = np.searchsorted(self.bounds, rows, side="right") - 1
        spans = np.stack([begins, begins + heads, ends - (sizes - heads), ends], axis=1).reshape(-1, 2)
        parts = [
            self._stores[owner].tokens(spans[2 * start : 2 * end])
            for owner, start, end in _stretches(owners)
        ] or [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool))]  # fmt: skip
        ids, trained = (np.concatenate(each) for each in zip(*parts, strict=True))
        return ids.astype(np.int64), trained, sizes

    def place_of(self, row: int) -> tuple[int, int]:
        """The source of a row, and its number there."""
        source = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return source, row - int(self.bounds[source])


def _spans(store: Store) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(len(store.facts))
    first, last = np.searchsorted(store.rows, numbers), np.searchsorted(store.rows, numbers, side="right")
    bounds = np.concatenate([store.starts, [int(store.counts.num_tokens)]])
    return bounds[first], bounds[last]


def _stretches(values: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Each stretch of the same value: (value, first, behind the last)."""
    bounds = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for start, end in pairwise(bounds):
        if start < end:
            yield int(values[start]), start, end
