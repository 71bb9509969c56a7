"""Rows set aside for evaluation: whole rows, so that no part of one is both trained on and measured.

Rows that say the same, or nearly, go to one side together: else what is measured would have been trained on. Where
answers are compared, so do all answers to a prompt.
"""

import numpy as np

from ftui.errors import DataError

from ..system.distinct import distinct
from .facts.near_duplicates import group_by_pairs
from .stores.duplicate_pairs import load_likely_pairs
from .stores.sequences import Sequences
from .stores.store import read_column

ALONE = "Get more rows, or leave out what sets some aside: data.eval_fraction, data.eval_num_rows."
ONE_TEXT = 'run.stage = "pretrain" is for plain text: it sets parts of a long one aside.'


def choose_holdout(
    data: Sequences, *, fraction: float | None, num_rows: int | None, seed: int, may_cut: bool = False
) -> np.ndarray:
    """The mask of the sequences set aside: a share of the rows of each source, or a number of all rows.

    Chosen by the seed alone. Rows that gave no sequence are not counted. Where they `may` be `cut` (plain text, whose
    sequences share no token) and are too few, as one long book is, sequences are set aside instead.

    Raises:
        DataError: it would be all rows there are.
    """
    random = np.random.default_rng([seed, 0xE7A1])
    chooser = _Chooser(_groups(data), random)
    is_text = all(set(store.counts.forms) == {"text"} for store in data.stores) and not may_cut
    if fraction is None:
        return _choose_rows(data.rows, num_rows or 0, chooser, may_cut=may_cut, is_text=is_text)
    parts = []
    for start, end in zip(data.bounds, data.bounds[1:], strict=False):
        rows = data.rows[start:end]
        count = len(distinct(rows))
        if may_cut and count * fraction < 1:
            few = end - start <= 1 and len(data.bounds) > 2
            parts.append(_choose_sequences(int(end - start), 0 if few else _share(fraction, int(end - start)), random))
            continue
        few = count <= 1 and len(data.bounds) > 2  # a source of one row beside others is trained on
        parts.append(_choose_rows(rows, 0 if few else _share(fraction, count), chooser, is_text=is_text))
    return np.concatenate(parts)


def _share(fraction: float, count: int) -> int:
    return max(1, min(round(fraction * count), count - 1))


def _groups(data: Sequences) -> np.ndarray:
    """For each row (of all stores, in their order) the first one that it is like: itself, for most."""
    content = read_column(data.stores, "content")
    _, firsts, which = np.unique(content, return_index=True, return_inverse=True)
    same = np.stack([firsts[which], np.arange(len(content))], axis=1)
    later = same[:, 0] != same[:, 1]
    pairs = [same[later], load_likely_pairs(data.stores)]
    if data.labels.any():
        pairs.append(_same_prompts(read_column(data.stores, "prompt")))
    return group_by_pairs(len(content), np.concatenate(pairs, dtype=np.int32))


def _same_prompts(prompts: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of the first row with a prompt and another one that has it."""
    asking = np.flatnonzero(prompts)
    _, firsts, which = np.unique(prompts[asking], return_index=True, return_inverse=True)
    pairs = np.stack([asking[firsts[which]], asking], axis=1)
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]])


class _Chooser:
    """Picks rows to set aside, one source after the other, and keeps in mind what its picks mean for the next."""

    def __init__(self, groups: np.ndarray, random: np.random.Generator) -> None:
        self.random = random
        self._groups = groups
        self._are_all_different = bool((groups == np.arange(len(groups))).all())
        self._sides = np.zeros(len(groups), dtype=np.int8)  # of groups: trained on, not decided yet, set aside

    def choose(self, rows: np.ndarray, wanted: int) -> np.ndarray:
        """`wanted` of these rows (each once, ascending), in a random order; groups stay whole.

        Where only groups are left that are too large, one of them is torn: the number is what was asked for.
        """
        order = rows[self.random.permutation(len(rows))]
        if self._are_all_different:
            return order[:wanted]
        groups = self._groups[order]
        names, places, sizes = np.unique(groups, return_index=True, return_counts=True)
        left = wanted - int(sizes[self._sides[names] > 0].sum())
        for place in np.argsort(places):  # in the order in which their first rows come
            if left <= 0:
                break
            if self._sides[names[place]] == 0 and sizes[place] <= left:
                self._sides[names[place]] = 1
                left -= int(sizes[place])
        self._sides[names[self._sides[names] == 0]] = -1
        chosen = order[self._sides[groups] > 0][:wanted]
        return np.concatenate([chosen, order[self._sides[groups] < 0][: wanted - len(chosen)]])


def _choose_rows(
    rows: np.ndarray, wanted: int, chooser: _Chooser, *, may_cut: bool = False, is_text: bool = False
) -> np.ndarray:
    """The mask of `wanted` rows; `rows` has the row of every sequence, of plain text where `is_text`."""
    names = distinct(rows)
    if may_cut and wanted >= len(names):
        return _choose_sequences(len(rows), wanted, chooser.random)
    _check(wanted, len(names), ONE_TEXT if is_text else ALONE)
    return np.isin(rows, chooser.choose(names, wanted))


def _choose_sequences(number: int, wanted: int, random: np.random.Generator) -> np.ndarray:
    """The mask of `wanted` of that many sequences, whatever rows they are of."""
    _check(wanted, number)
    return np.isin(np.arange(number), random.permutation(number)[:wanted])


def _check(wanted: int, there: int, hint: str = ALONE) -> None:
    """`hint` is for one row alone."""
    if wanted and wanted >= there:
        raise DataError(
            f"{wanted:,} {'row is' if wanted == 1 else 'rows are'} to be set aside for evaluation, and there "
            f"{'is only one' if there == 1 else f'are only {there:,}'}.",
            hint="Lower data.eval_num_rows." if there > 1 else hint,
        )
