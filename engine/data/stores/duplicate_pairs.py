"""Rows that look alike, kept beside their tokens: finding them takes 2 s for a million rows, 6 where most are alike."""

import hashlib
from collections.abc import Sequence

import numpy as np

from ...system.sealed_files import read_sealed, write_sealed
from ..facts.near_duplicates import likely_pairs
from .store import Store, read_column

FORM = 3  # raise it whenever other pairs would be found


def load_likely_pairs(stores: Sequence[Store]) -> np.ndarray:
    """Pairs (n, 2; int32) of rows of different content that look alike, the earlier first.

    Rows are counted over all stores in their order; of rows with the same content the first stands for all.
    """
    names = "\n".join([str(FORM), *(store.counts.fingerprint for store in stores)])
    file = stores[0].folder / f"pairs-{hashlib.sha256(names.encode()).hexdigest()[:16]}.bin"
    if (data := read_sealed(file)) is not None:
        return np.frombuffer(data, np.int32).reshape(-1, 2)
    firsts = np.sort(np.unique(read_column(stores, "content"), return_index=True)[1])
    similar = read_column(stores, "similar")
    is_all = len(firsts) == len(similar)
    pairs: np.ndarray = likely_pairs(similar) if is_all else firsts.astype(np.int32)[likely_pairs(similar[firsts])]
    write_sealed(file, pairs.tobytes())
    return pairs
