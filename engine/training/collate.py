"""Sequences as one micro-batch, padded or end to end."""

from collections.abc import Iterable
from collections.abc import Sequence as Several

import numpy as np
import torch

from ..data.load_rows import DataSplit
from ..data.tokens.encode import Sequence
from ..objectives.loss import Batch
from ..planning.plan import Row


def collate_examples(split: DataSplit, rows: Several[Row], pad_id: int, joined: bool = False) -> Batch:
    """A micro-batch of rows of a plan, which number the examples of `split`; `joined` as in `collate`.

    The answers of a pair stand in lines of their own, but for packed rows of several examples.
    """
    examples = [[split.example(number) for number in row] for row in rows]
    lines = [[sequence for example in row for sequence in example] for row in examples]
    if split.per_example > 1 and all(len(row) == 1 for row in examples):
        lines = [[sequence] for line in lines for sequence in line]
    return collate(lines, pad_id, split.per_example, joined=joined, scored=split.scored)


def collate(
    rows: Iterable[list[Sequence]], pad_id: int, per_example: int = 1, *, joined: bool = False, scored: bool = False
) -> Batch:
    """A micro-batch of rows; a row of several sequences is packed: positions start again at 0 with each of them.

    The first token of a sequence is never a target: nothing of its own sequence comes before it. `joined` makes one row
    of all sequences, each without what predicts nothing at its end. `scored`: the end of each is read, too.
    """
    rows = [[sequence for row in rows for sequence in row]] if joined else list(rows)
    kept = [[_num_read(sequence, whole=scored or not joined) for sequence in row] for row in rows]
    lengths = np.array([sum(row) for row in kept], dtype=np.int64)
    length = int(lengths.max())
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    positions = np.tile(np.arange(length, dtype=np.int64), (len(rows), 1))
    predictors, target_ids, ends = [], [], []
    for number, row in enumerate(rows):
        start = 0
        for sequence, size in zip(row, kept[number], strict=True):
            ids[number, start : start + size] = sequence.input_ids[:size]
            positions[number, start:] = np.arange(length - start)  # padding counts on from the last sequence
            predictors.append(number * length + start + np.flatnonzero(sequence.targets[1:]))
            target_ids.append(sequence.input_ids[1:][sequence.targets[1:]])
            start += size
            ends.append(number * length + start - 1)
    sequences = [sequence for row in rows for sequence in row]
    labels = np.array([sequence.label for sequence in sequences], dtype=np.int8)
    is_compared = bool(labels.any())
    num_targets = np.array([sequence.num_targets for sequence in sequences])
    references = [sequence.reference for sequence in sequences if sequence.reference is not None]
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(positions) if len(sequences) > len(rows) else None,
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
        None if joined else torch.from_numpy(lengths),
        torch.from_numpy(np.repeat(np.arange(len(sequences)), num_targets)) if is_compared else None,
        torch.from_numpy(np.concatenate(references)) if references else None,
        torch.from_numpy(labels) if is_compared else None,
        joined=tuple(kept[0]) if joined else None,
        ends=torch.tensor(ends) if scored else None,
        margins=torch.tensor([pair.margin for pair in sequences[::per_example]]) if scored else None,
    )


def _num_read(sequence: Sequence, *, whole: bool) -> int:
    """Tokens of a sequence; unless it is `whole`, up to the last one that predicts a target, at least one: nothing
    before them depends on the others.
    """
    if whole:
        return len(sequence.input_ids)
    targets = np.flatnonzero(sequence.targets)
    return max(1, int(targets[-1]) if len(targets) else 0)
