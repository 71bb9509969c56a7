"""Verdicts that contradict each other: the same answers to the same prompt, judged the other way round."""

import numpy as np

from .duplicates import Matches, list_matches
from .row_index import RowIndex

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MORE = np.uint64(0xD1342543DE82EF95)


def find_contradictions(rows: RowIndex, num_trained: int) -> tuple[Matches, Matches]:
    """Rows that say the opposite of an earlier one; and pairs with an answer that stands on the other side elsewhere.

    The latter are only those that no other row is the opposite of. Of the first `num_trained` rows.
    """
    chosen, rejected = (rows.column(name)[:num_trained] for name in ("chosen", "rejected"))
    opposed = _opposed(_ordered(chosen, rejected), _ordered(rejected, chosen))
    is_pair = (chosen != 0) & (rejected != 0) & (chosen != rejected)
    opposites = np.stack([opposed, np.arange(num_trained)], axis=1)[opposed >= 0]
    contradicting = opposites[opposites[:, 0] < opposites[:, 1]]
    is_pair[opposites[:, 1]] = False
    pairs = np.flatnonzero(is_pair)
    elsewhere = np.maximum(_opposed(chosen[pairs], rejected[pairs]), _opposed(rejected[pairs], chosen[pairs]))
    ranked = np.stack([pairs[elsewhere], pairs], axis=1)[elsewhere >= 0]
    return list_matches(contradicting), list_matches(ranked)


def _ordered(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """One value (uint64) of two, which differs from that of the two swapped; 0 where both are the same."""
    mixed = first * _MIX + (other ^ (other >> np.uint64(31))) * _MORE
    return np.where(first == other, np.uint64(0), mixed)


def _opposed(values: np.ndarray, opposites: np.ndarray) -> np.ndarray:
    """For each of `opposites` the first place with its value among `values`, -1 where there is none or it is 0."""
    known, firsts = np.unique(values, return_index=True)
    places = np.minimum(np.searchsorted(known, opposites), max(0, len(known) - 1))
    is_there = (known[places] == opposites) & (opposites != 0) if len(known) else np.zeros(0, dtype=bool)
    return np.where(is_there, firsts[places] if len(known) else 0, -1)
