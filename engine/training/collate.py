"""Sequences as one padded micro-batch."""

from collections.abc import Iterable

import numpy as np
import torch

from ..data.tokens.encode import Sequence
from ..objectives.loss import Batch


def collate(rows: Iterable[list[Sequence]], pad_id: int) -> Batch:
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
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(positions) if packed else None,
        torch.from_numpy(flat - 1),
        torch.from_numpy(ids.reshape(-1)[flat]),
        int(lengths.sum()),
        torch.from_numpy(lengths),
    )
