"""Sequences as one micro-batch: padded, end to end, or with the prompt of several answers once."""

from collections.abc import Iterable
from collections.abc import Sequence as Several
from typing import NamedTuple

import numpy as np
import torch

from ..data.load_rows import DataSplit
from ..data.tokens.encode import Sequence, num_common
from ..objectives.loss import Batch, RowLayout
from ..planning.plan import Row


def collate_examples(split: DataSplit, rows: Several[Row], pad_id: int, layout: RowLayout = RowLayout.PADDED) -> Batch:
    """A micro-batch of rows of a plan, which number the examples of `split`.

    The answers of a pair stand in lines of their own, but for packed rows of several examples.
    """
    examples = [[split.example(number) for number in row] for row in rows]
    lines = [[sequence for example in row for sequence in example] for row in examples]
    if split.per_example > 1 and all(len(row) == 1 for row in examples):
        lines = [[sequence] for line in lines for sequence in line]
    return collate(lines, pad_id, split.per_example, layout=layout, scored=split.scored)


def collate(
    rows: Iterable[list[Sequence]],
    pad_id: int,
    per_example: int = 1,
    *,
    layout: RowLayout = RowLayout.PADDED,
    scored: bool = False,
    groups: Several[int] | None = None,
) -> Batch:
    """A micro-batch of rows; a row of several sequences is packed: positions start again at 0 with each of them.

    The first token of a sequence is never a target: nothing of its own sequence comes before it. `layout` may make one
    row of all sequences; `per_example` of them in a row are the answers of an example, or `groups` says how many each
    time have a beginning in common. `scored`: the end of each is read, too.
    """
    rows = list(rows)
    sequences = [sequence for row in rows for sequence in row]
    if layout is RowLayout.PADDED:
        places = _pad(rows, pad_id)
    else:
        read = [one.input_ids if scored else one.input_ids[: _num_read(one)] for one in sequences]
        alike = groups or [per_example] * (len(read) // per_example)
        places = _join(read, alike if layout is RowLayout.SHARED else [1] * len(read))
    predictors = [place[np.flatnonzero(one.targets[1:])] for one, place in zip(sequences, places.of, strict=True)]
    target_ids = [sequence.input_ids[1:][sequence.targets[1:]] for sequence in sequences]
    labels = np.array([sequence.label for sequence in sequences], dtype=np.int8)
    is_compared = bool(labels.any())
    num_targets = np.array([sequence.num_targets for sequence in sequences])
    references = [sequence.reference for sequence in sequences if sequence.reference is not None]
    return Batch(
        torch.from_numpy(places.ids),
        None if places.positions is None else torch.from_numpy(places.positions),
        torch.from_numpy(np.concatenate(predictors)),
        torch.from_numpy(np.concatenate(target_ids).astype(np.int64)),
        {
            "tokens": sum(len(sequence.input_ids) for sequence in sequences),
            "targets": int(num_targets.sum()),
            "examples": len(sequences) // per_example,
            "chosen_targets": int(num_targets[labels > 0].sum()),
            "chosen": int((labels > 0).sum()),
            "rejected": int((labels < 0).sum()),
        },
        None if places.lengths is None else torch.from_numpy(places.lengths),
        torch.from_numpy(np.repeat(np.arange(len(sequences)), num_targets)) if is_compared else None,
        torch.from_numpy(np.concatenate(references)) if references else None,
        torch.from_numpy(labels) if is_compared else None,
        joined=places.pieces,
        ends=torch.tensor([place[-1] for place in places.of]) if scored else None,
        margins=torch.tensor([pair.margin for pair in sequences[::per_example]]) if scored else None,
    )


class _Places(NamedTuple):
    """`ids`, `positions`, `lengths` and `pieces` are those of `Batch` (`joined`); all arrays are int64.

    `of`: for each sequence, where its tokens are in the flattened (rows x length) places.
    """

    ids: np.ndarray
    positions: np.ndarray | None
    of: list[np.ndarray]
    lengths: np.ndarray | None = None
    pieces: tuple[int, ...] | None = None


def _pad(rows: Several[Several[Sequence]], pad_id: int) -> _Places:
    lengths = np.array([sum(len(one.input_ids) for one in row) for row in rows], dtype=np.int64)
    length = int(lengths.max())
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    positions = np.tile(np.arange(length, dtype=np.int64), (len(rows), 1))
    places = []
    for number, row in enumerate(rows):
        start = 0
        for sequence in row:
            size = len(sequence.input_ids)
            ids[number, start : start + size] = sequence.input_ids
            positions[number, start:] = np.arange(length - start)  # padding counts on from the last sequence
            places.append(number * length + start + np.arange(size))
            start += size
    return _Places(ids, positions if len(places) > len(rows) else None, places, lengths)


def _join(sequences: Several[np.ndarray], groups: Several[int]) -> _Places:
    """All ids in one row; what the sequences of a group have in common at their beginning is there once."""
    ids, positions, places, pieces = [], [], [], list[int]()
    end = 0
    for last, size in zip(np.cumsum(groups).tolist(), groups, strict=True):
        answers = sequences[last - size : last]
        common = num_common(answers)
        parts = [answers[0][:common], *(one[common:] for one in answers)]
        begins = end + np.cumsum([0, *map(len, parts)])
        shared = np.arange(end, end + common)
        for begin, part in zip(begins[1:-1], parts[1:], strict=True):
            places.append(np.concatenate([shared, begin + np.arange(len(part))]))
        ids += parts
        positions += [np.arange(common), *(common + np.arange(len(part)) for part in parts[1:])]
        pieces += [common, *(-len(part) if common else len(part) for part in parts[1:])]
        end = int(begins[-1])
    row, position = (np.concatenate(parts).astype(np.int64)[None] for parts in (ids, positions))
    return _Places(row, position if len(sequences) > 1 else None, places, pieces=tuple(n for n in pieces if n))


def _num_read(sequence: Sequence) -> int:
    """Tokens up to the last one that predicts a target, at least one: nothing before them depends on the others."""
    targets = np.flatnonzero(sequence.targets)
    return max(1, int(targets[-1]) if len(targets) else 0)
