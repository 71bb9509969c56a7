"""Rows set aside for evaluation: whole rows, so that no part of one is both learned and measured."""

import numpy as np

from ftui.engine.data.sequences import Sequences
from ftui.errors import DataError


def held_out(
    data: Sequences, *, fraction: float | None, num_rows: int | None, seed: int, may_cut: bool = False
) -> np.ndarray:
    """The mask of the sequences set aside: a share of the rows of each source, or a number of all rows.

    Chosen by the seed alone. Rows that gave no sequence are not counted. Where they `may` be `cut` (plain text, whose
    sequences share no token) and are too few, as one long book is, sequences are set aside instead.

    Raises:
        DataError: it would be all rows there are.
    """
    random = np.random.default_rng([seed, 0xE7A1])
    if fraction is None:
        return _apart(data.rows, num_rows or 0, random, may_cut=may_cut)
    parts = []
    for start, end in zip(data.bounds, data.bounds[1:], strict=False):
        rows = data.rows[start:end]
        count = len(np.unique(rows))
        if may_cut and count * fraction < 1:
            rows, count = np.arange(end - start), int(end - start)
        few = count <= 1 and len(data.bounds) > 2  # a source of one row beside others is learned
        parts.append(_apart(rows, 0 if few else max(1, min(round(fraction * count), count - 1)), random))
    return np.concatenate(parts)


def _apart(rows: np.ndarray, wanted: int, random: np.random.Generator, *, may_cut: bool = False) -> np.ndarray:
    """The mask of `wanted` rows; `rows` has the row of every sequence."""
    if may_cut and wanted >= len(np.unique(rows)):
        rows = np.arange(len(rows))
    names = np.unique(rows)
    if wanted and wanted >= len(names):
        raise DataError(
            f"{wanted} rows are to be set aside for evaluation, but there are only {len(names)}.",
            hint="Lower data.eval_num_rows." if len(names) > 1 else "",
        )
    return np.isin(rows, names[random.permutation(len(names))[:wanted]])
