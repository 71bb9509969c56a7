"""Stores as the model sees them: sequences no longer than data.max_length, source after source.

Longer ones are split in stage `pretrain`, else cut: both answers of a pair at the same length. That is a view of what
stands on the disk: another length reads and tokenises nothing again.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec
import numpy as np

from ftui.profile.sections.preference import PAIR_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES

from ..tokens.encode import Sequence
from .store import Store


class SequenceCounts(msgspec.Struct, frozen=True):
    """What is seen at this length. Sequences without a trained token are left out: `num_without_target` of them, and
    of a pair the other answer with it.

    `num_cut` were too long. `num_skipped` rows were left out before they were tokens.
    """

    num_rows: int
    num_skipped: int
    num_sequences: int
    num_tokens: int
    num_target_tokens: int
    num_cut: int
    num_without_target: int
    longest: int
    fingerprint: str


@dataclass(frozen=True)
class Sequences:
    """All sequences of a data set, source after source.

    `lengths`, `num_targets` and `rows` are int32 arrays with one entry per sequence; `rows` is the number of the row
    it was made of, from 0 (a long document or a template that rewrites earlier turns gives several of one row).
    `bounds` are the first sequence of each source and, at the end, the number of all; `starts` (int64) is where each
    begins in the store of its source; `labels` and `margins` are those of `Sequence`.
    """

    counts: SequenceCounts
    lengths: np.ndarray
    num_targets: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    margins: np.ndarray
    starts: np.ndarray
    bounds: tuple[int, ...]
    stores: tuple[Store, ...]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sequence:
        source = 0
        while index >= self.bounds[source + 1]:
            source += 1
        start = int(self.starts[index])
        whole = self.stores[source].cut(start, start + int(self.lengths[index]))
        return replace(whole, label=int(self.labels[index]), margin=float(self.margins[index]))


def cut_to_length(store: Store, stage: str, max_length: int) -> Sequences:
    """The sequences of one source: longer ones are split without losing a token in stage `pretrain`, else cut.

    Prompts to be answered are left out: one that is cut asks something else.
    """
    cut = store.lengths > max_length
    if stage == "pretrain":
        starts, lengths, whole = _pieces(store, max_length)
        num_targets = store.count_trained(starts + 1, starts + lengths) if cut.any() else np.array(store.num_targets)
    else:
        starts, whole, num_targets = store.starts, np.arange(len(cut)), np.array(store.num_targets)
        lengths = np.minimum(store.lengths, np.int32(max_length))
        num_targets[cut] = store.count_trained(starts[cut] + 1, starts[cut] + max_length)
    has_targets = num_targets > 0
    if stage in POLICY_STAGES:
        has_targets = ~cut
    if stage in PAIR_STAGES:  # a pair is two sequences in a row
        has_targets = np.repeat(has_targets.reshape(-1, 2).all(axis=1), 2)
    starts, lengths, whole, num_targets = (one[has_targets] for one in (starts, lengths, whole, num_targets))
    counts = SequenceCounts(
        num_rows=store.counts.num_rows, num_skipped=store.counts.num_skipped, num_sequences=len(lengths),
        num_tokens=int(lengths.sum(dtype=np.int64)), num_target_tokens=int(num_targets.sum(dtype=np.int64)),
        num_cut=int(cut.sum()), num_without_target=int(np.count_nonzero(~has_targets)),
        longest=int(lengths.max(initial=0)),
        fingerprint=hashlib.sha256(f"{store.counts.fingerprint}\n{max_length}".encode()).hexdigest(),
    )  # fmt: skip
    rows, labels, margins = (np.asarray(one)[whole] for one in (store.rows, store.labels, store.margins))
    return Sequences(counts, lengths, num_targets, rows, labels, margins, starts, (0, len(lengths)), (store,))


def _pieces(store: Store, max_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, length and sequence of every piece of at most max_length tokens, none of one token but where that is all.

    A token alone is predicted from nothing: the end of a text would be lost, so the piece before gives it one of its.
    """
    lengths = np.asarray(store.lengths)
    numbers = np.maximum(1, -(-lengths // max_length))
    whole = np.repeat(np.arange(len(lengths)), numbers)
    first = np.cumsum(numbers, dtype=np.int64) - numbers
    nth = np.arange(len(whole)) - first[whole]
    starts = store.starts[whole] + nth * np.int64(max_length)
    ends = np.minimum(starts + max_length, (store.starts + lengths)[whole])
    alone = (nth > 0) & (ends - starts == 1)
    starts[alone] -= 1
    ends[np.flatnonzero(alone) - 1] -= 1
    return starts, (ends - starts).astype(np.int32), whole


def join_sources(parts: Iterable[Sequences]) -> Sequences:
    """Sources after one another. Of several, the fingerprint is that of theirs."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    first_rows = accumulate((part.counts.num_rows for part in parts[:-1]), initial=0)
    return Sequences(
        _sum([part.counts for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.num_targets for part in parts]),
        np.concatenate([part.rows + np.int32(first) for part, first in zip(parts, first_rows, strict=True)]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.margins for part in parts]),
        np.concatenate([part.starts for part in parts]),
        tuple(accumulate((len(part) for part in parts), initial=0)),
        tuple(store for part in parts for store in part.stores),
    )


def _sum(each: list[SequenceCounts]) -> SequenceCounts:
    totals = {
        name: sum(getattr(counts, name) for counts in each)
        for name in SequenceCounts.__struct_fields__
        if name not in ("longest", "fingerprint")
    }
    prints = "\n".join(counts.fingerprint for counts in each)
    fingerprint = hashlib.sha256(prints.encode()).hexdigest()
    return SequenceCounts(**totals, longest=max(counts.longest for counts in each), fingerprint=fingerprint)
