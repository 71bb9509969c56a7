"""Prompts with the answers of other rows: what KTO measures on how far the model has moved from its reference.

Each answer has one partner for good, whatever the batches and epochs are: so the reference is measured once for it,
too, and none is ever the partner of its own row, as in batches of one (TRL rotates the answers of each batch).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .stores.sequences import Sequences
from .tokens.encode import Sequence


@dataclass(frozen=True)
class MismatchedSequences(Sequences):
    """Number n is the prompt of sequence n of `own` with the answer of its sequence partners[n]."""

    own: Sequences
    partners: np.ndarray
    max_length: int

    def __getitem__(self, index: int) -> Sequence:
        return _splice(self.own[index], self.own[int(self.partners[index])], self.max_length)


def mismatch(sequences: Sequences, indices: np.ndarray, max_length: int, seed: int) -> MismatchedSequences:
    """The sequences `indices` with each other's answers, each answer used once; others stay without a partner."""
    partners = np.arange(len(sequences))
    partners[indices] = choose_partners(indices, sequences.rows[indices], seed)
    prompts = _prompt_lengths(sequences)
    owners, others = indices[np.argsort(partners[indices])], indices  # each answer, in the order of the files
    room = np.minimum(sequences.lengths[others] - prompts[others], max_length - prompts[owners])
    lengths, num_targets = np.array(sequences.lengths), np.array(sequences.num_targets)
    lengths[owners] = prompts[owners] + room
    num_targets[owners] = _count_trained(sequences, others, prompts[others], room)
    labels = np.ones(len(sequences), dtype=np.int8)
    return MismatchedSequences(
        sequences.counts, lengths, num_targets, sequences.rows, labels, sequences.margins, sequences.starts,
        sequences.bounds, sequences.stores, sequences, partners, max_length,
    )  # fmt: skip


def choose_partners(indices: np.ndarray, rows: np.ndarray, seed: int) -> np.ndarray:
    """For each of these sequences, which are of these rows, another one of them, of another row."""
    order = np.random.default_rng([seed, 0x4B54]).permutation(len(indices))
    order, most = _together_by_row(order, rows[order])
    partners = np.empty_like(indices)
    partners[order] = indices[np.roll(order, -most)]
    return partners


def _prompt_lengths(sequences: Sequences) -> np.ndarray:
    """The tokens (int32) before the first target of each sequence."""
    ends = sequences.starts + sequences.lengths
    return 1 + np.concatenate(
        [
            store.first_trained(sequences.starts[first:last] + 1, ends[first:last])
            for store, (first, last) in zip(sequences.stores, pairwise(sequences.bounds), strict=True)
        ]
    )


def _count_trained(sequences: Sequences, numbers: np.ndarray, firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The targets among `sizes` tokens from `firsts` on of the sequences `numbers`, which ascend."""
    starts, cuts = sequences.starts[numbers] + firsts, np.searchsorted(numbers, sequences.bounds)
    return np.concatenate(
        [
            store.count_trained(starts[first:last], (starts + sizes)[first:last])
            for store, (first, last) in zip(sequences.stores, pairwise(cuts), strict=True)
        ]
    )


def _together_by_row(order: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, int]:
    """The same sequences, those of one row behind each other, and how many of one row there are at most.

    Both answers of a pair are to the same prompt: so many places on, there is one of another row.
    """
    _, first, number, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    return order[np.argsort(first[number], kind="stable")], int(counts.max(initial=1))


def _splice(own: Sequence, other: Sequence, max_length: int) -> Sequence:
    """What comes before the first target of one, then what begins with the first target of the other."""
    prompt, answer = (int(np.flatnonzero(one.targets[1:])[0]) + 1 for one in (own, other))
    ids = np.concatenate([own.input_ids[:prompt], other.input_ids[answer:]])[:max_length]
    targets = np.concatenate([np.zeros(prompt, dtype=bool), other.targets[answer:]])[:max_length]
    return Sequence(ids, targets, label=1)
