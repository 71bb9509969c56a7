"""Rows that somebody else has tokenised: ids, and beside them what is trained on."""

from typing import Any

import numpy as np

from ..files.raw_rows import Row
from .column_names import ColumnNames
from .examples import Tokens
from .turns import read_list

IGNORED = -100  # the label of a token that is not trained on, as PyTorch's loss has it
MASKS = ("completion_mask", "assistant_masks")  # TRL's names


def read_tokens(row: Row, shape: ColumnNames) -> Tokens:
    """`input_ids`, with `labels` (-100 = not trained on) or a loss mask; without either all of it is trained on.

    Padding (`attention_mask` 0) is left out; without such a mask it is still there (see `strip_padding`).

    Raises:
        DataError: they are no whole numbers, not equally many, or do not fit together.
    """
    ids = _read_integers(row, "input_ids")
    if ids is None or not len(ids):
        raise row.error("'input_ids' is not a list of token ids")
    if ids.min() < 0:
        raise row.error(f"'input_ids' has {ids.min()} at position {int(ids.argmin())}: no token has such an id")
    columns = {key: _read_integers(row, key) for key in ("labels", "attention_mask", *MASKS)}
    for key, column in columns.items():
        if column is not None and len(column) != len(ids):
            raise row.error(f"{key!r} has {len(column)} values, 'input_ids' has {len(ids)}")
    targets = _targets(row, ids, columns)
    attended = columns["attention_mask"]
    attended_mask = np.ones(len(ids), bool) if attended is None else attended != 0
    return Tokens(ids[attended_mask].astype(np.int32), targets[attended_mask], is_bare=attended is not None)


def _targets(row: Row, ids: np.ndarray, columns: dict[str, np.ndarray | None]) -> np.ndarray:
    targets = np.ones(len(ids), dtype=bool)
    for name in MASKS:
        mask = columns[name]
        if mask is not None:
            targets &= mask != 0
    labels = columns["labels"]
    if labels is None:
        return targets
    trained = labels != IGNORED
    others = np.flatnonzero(trained & (labels != ids))
    if len(others):
        first = int(others[0])
        shifted = np.array_equal(labels[:-1][trained[:-1]], ids[1:][trained[:-1]])
        raise row.error(
            f"'labels' has {labels[first]} at position {first}, where 'input_ids' has {ids[first]}",
            hint="They are shifted by one; unshifted ones are wanted, as transformers shifts them itself."
            if shifted
            else f"A label is the token's own id, or {IGNORED} where it is not trained on.",
        )
    both: np.ndarray = targets & trained
    return both


def _read_integers(row: Row, key: str) -> np.ndarray | None:
    """The whole numbers under a key, as int64; `None` where there are none."""
    values: list[Any] | None = read_list(row, key)
    if values is None:
        if row.value.get(key) is not None:
            raise row.error(f"{key!r} is not a list of whole numbers")
        return None
    wrong = next((n for n, value in enumerate(values) if type(value) not in (int, bool)), None)
    if wrong is not None or any(not -(2**31) <= value < 2**31 for value in values):
        words = f"'{key}' has {values[wrong]!r:.30} at position {wrong}" if wrong is not None else f"{key!r} has one"
        raise row.error(f"{words}: no whole number of 32 bits")
    return np.asarray(values, dtype=np.int64)
