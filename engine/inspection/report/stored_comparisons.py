"""What is found by comparing all rows, kept beside the tokens: it depends on nothing else, and takes seconds."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import structs

from ftui.dataset.report import OtherLength

from ...data.stores.duplicate_pairs import load_likely_pairs
from ...data.stores.store import Store
from ...system.sealed_files import read_sealed, write_sealed
from .contradictions import find_contradictions
from .duplicates import Comparison, compare_rows
from .lengths import cut_losses
from .row_index import RowIndex

FORM = 3  # raise it whenever the same tokens would be judged otherwise


class StoredComparisons(msgspec.Struct, frozen=True):
    sameness: Comparison
    losses: list[OtherLength]


def load_comparisons(
    rows: RowIndex, stores: Sequence[Store], num_trained: int, lengths: Sequence[int]
) -> StoredComparisons:
    """How alike the rows of all `stores` are, and what these `lengths` would take from the first ones of them.

    `rows` are those of all stores, of which the first `num_trained` are trained on.
    """
    trained = _first_stores(stores, num_trained)
    names = "\n".join(
        [str(FORM), str(num_trained), *map(str, lengths), *(store.counts.fingerprint for store in stores)]
    )
    file = stores[0].folder / f"report-{hashlib.sha256(names.encode()).hexdigest()[:16]}.json"
    if (data := read_sealed(file)) is not None:
        return msgspec.json.decode(data, type=StoredComparisons)
    sameness = compare_rows(rows, num_trained, load_likely_pairs(stores))
    if any(store.labels[:1].any() for store in trained):
        contradicting, ranked = find_contradictions(rows, num_trained)
        sameness = structs.replace(sameness, contradicting=contradicting, ranked=ranked)
    comparisons = StoredComparisons(sameness, cut_losses(trained, lengths))
    write_sealed(file, msgspec.json.encode(comparisons))
    return comparisons


def _first_stores(stores: Sequence[Store], num_rows: int) -> list[Store]:
    chosen, left = [], num_rows
    for store in stores:
        if left > 0:
            chosen.append(store)
        left -= len(store.facts)
    return chosen
