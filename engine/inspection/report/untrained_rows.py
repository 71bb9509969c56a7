"""Rows without a token to train on: how many of each source, and whether it is data.max_length that takes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from ...data.sources import ResolvedSource
from ...data.stores.sequences import Sequences
from ...data.stores.store import Store
from ...system.distinct import distinct

MOST_NAMED = 3
TOO_LONG = "What stands before the answer (tools, system, prompt) fills data.max_length: raise it."
NO_ANSWER = "Are there turns of the assistant, and does data.roles know its name?"


@dataclass(frozen=True)
class UntrainedRows:
    """`rows` (numbers over all sources); `num_too_long` of them would be trained on at their full length.

    `shares` = of each source that loses any: its name, rows lost and rows there are; the worst first.
    """

    rows: np.ndarray
    num_rows: int
    num_too_long: int
    shares: list[tuple[str, int, int]]

    @property
    def detail(self) -> str:
        """How it spreads over several sources, in words."""
        return ", ".join(f"{lost:,} of {there:,} in {name}" for name, lost, there in self.shares[:MOST_NAMED])

    @property
    def fix(self) -> str:
        reasons = ((NO_ANSWER, len(self.rows) - self.num_too_long), (TOO_LONG, self.num_too_long))
        causes = [(words, number) for words, number in reasons if number]
        return " ".join(f"{number:,}: {words}" if len(causes) > 1 else words for words, number in causes)


def find_untrained_rows(
    sources: Sequence[ResolvedSource], stores: Sequence[Store], sequences: Sequences
) -> UntrainedRows:
    """Rows that have no sequence on purpose (answers judged bad) are none of them."""
    rows, shares = [], []
    first = num_rows = num_too_long = 0
    for source, store in zip(sources, stores, strict=True):
        there = distinct(store.rows)
        lost = there[~np.isin(there + first, sequences.rows)]
        num_too_long += int(np.isin(lost, store.rows[store.num_targets > 0]).sum())
        if len(lost):
            shares.append((PurePath(source.name).name, len(lost), len(there)))
        rows.append(lost.astype(np.int64) + first)
        first, num_rows = first + len(store.facts), num_rows + len(there)
    shares.sort(key=lambda share: -share[1] / share[2])
    return UntrainedRows(np.concatenate(rows), num_rows, num_too_long, shares)
