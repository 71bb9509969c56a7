"""Sequences as one padded micro-batch."""

from collections.abc import Iterable
from collections.abc import Sequence as Several

import numpy as np
import torch

from ..data.load_rows import DataSplit
from ..data.tokens.encode import Sequence
from ..objectives.loss import Batch
from ..planning.plan import Row


def collate_examples(split: DataSplit, rows: Several[Row], pad_id: int) -> Batch:
    """A micro-batch of rows of a plan, which number the examples of `split`.

    The answers of a pair stand in lines of their own, but for packed rows of several examples.
    """
    examples = [[split.example(number) for number in row] for row in rows]
    lines = [[sequence for example in row for sequence in example] for row in examples]
    if split.per_example > 1 and all(len(row) == 1 for row in examples):
        lines = [[sequence] for line in lines for sequence in line]
    return collate(lines, pad_id, split.per_example)


def collate(rows: Iterable[list[Sequence]], pad_id: int, per_example: int = 1) -> Batch:
    """A micro-batch of rows; a row of several sequences is packed: positions start again at 0 with each of them.

    The first token of a sequence is never a target: nothing of its own sequence comes before it.
    """
    rows = list(rows)
    length = max(sum(len(sequence.input_ids) for sequence in row) for row in rows)
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    targets = np.zeros((len(rows), length), dtype=bool)
    positions = np.tile(np.arange(length, dtype=np.int64), (len(rows), 1))
    lengths = np.zeros(len(rows), dtype=np.int64)
    for number, row in enumerate(rows):
        start = 0
        for sequence in row:
            end = start + len(sequence.input_ids)
            ids[number, start:end] = sequence.input_ids
            targets[number, start + 1 : end] = sequence.targets[1:]
            positions[number, start:] = np.arange(length - start)  # padding counts on from the last sequence
            start = end
        lengths[number] = start
    flat = np.flatnonzero(targets)
    packed = any(len(row) > 1 for row in rows)
    sequences = [sequence for row in rows for sequence in row]
    labels = np.array([sequence.label for sequence in sequences], dtype=np.int8)
    is_compared = bool(labels.any())
    num_targets = np.array([sequence.num_targets for sequence in sequences])
    references = [sequence.reference for sequence in sequences if sequence.reference is not None]
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(positions) if packed else None,
        torch.from_numpy(flat - 1),
        torch.from_numpy(ids.reshape(-1)[flat]),
        {
            "tokens": int(lengths.sum()),
            "targets": len(flat),
            "examples": len(sequences) // per_example,
            "chosen_targets": int(num_targets[labels > 0].sum()),
            "chosen": int((labels > 0).sum()),
            "rejected": int((labels < 0).sum()),
        },
        torch.from_numpy(lengths),
        torch.from_numpy(np.repeat(np.arange(len(sequences)), num_targets)) if is_compared else None,
        torch.from_numpy(np.concatenate(references)) if references else None,
        torch.from_numpy(labels) if is_compared else None,
    )
