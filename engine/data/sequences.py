"""Tokenised rows as flat files mapped into memory: more of them than memory holds."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

from ftui.engine.data.encode import Sequence

FILES = {"ids.bin": "<i4", "targets.bin": "u1", "lengths.bin": "<i4", "num_targets.bin": "<i4", "rows.bin": "<i4"}
PER_TOKEN = ("ids.bin", "targets.bin")


class Counts(msgspec.Struct, frozen=True):
    """What tokenising saw. Rows without a learned token are left out and counted in `num_without_target`."""

    num_rows: int
    num_sequences: int
    num_tokens: int
    num_target_tokens: int
    num_cut: int
    num_without_target: int
    longest: int
    fingerprint: str


@dataclass(frozen=True)
class _Tokens:
    """One source: where each of its sequences begins (int64), and all tokens after one another."""

    starts: np.ndarray
    ids: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class Sequences:
    """All sequences of a data set, source after source.

    `lengths`, `num_targets` and `rows` are int32 arrays with one entry per sequence; `rows` is the number of the row
    it was made of, from 0 (a long document or a template that rewrites earlier turns gives several of one row).
    `bounds` are the first sequence of each source and, at the end, the number of all.
    """

    counts: Counts
    lengths: np.ndarray
    num_targets: np.ndarray
    rows: np.ndarray
    bounds: tuple[int, ...]
    _tokens: tuple[_Tokens, ...]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sequence:
        source = 0
        while index >= self.bounds[source + 1]:
            source += 1
        tokens = self._tokens[source]
        start = tokens.starts[index - self.bounds[source]]
        piece = slice(start, start + self.lengths[index])
        return Sequence(np.array(tokens.ids[piece]), np.array(tokens.targets[piece], dtype=bool))


def counts_in(place: Path) -> Counts | None:
    """What was counted, if every file is there at its full length: a power cut can leave less than was written."""
    try:
        counts = msgspec.json.decode((place / "counts.json").read_bytes(), type=Counts)
        for name, kind in FILES.items():
            number = counts.num_tokens if name in PER_TOKEN else counts.num_sequences
            if (place / name).stat().st_size != number * np.dtype(kind).itemsize:
                return None
    except (OSError, msgspec.DecodeError):
        return None
    return counts


def mapped(place: Path, counts: Counts) -> Sequences:
    """The sequences of one source, mapped from its files."""
    files = {name: np.memmap(place / name, dtype=kind, mode="r") for name, kind in FILES.items()}
    lengths = np.array(files["lengths.bin"])
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    tokens = _Tokens(starts, files["ids.bin"], files["targets.bin"])
    bounds = (0, len(lengths))
    return Sequences(counts, lengths, files["num_targets.bin"], files["rows.bin"], bounds, (tokens,))


def joined(parts: Iterable[Sequences]) -> Sequences:
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
        tuple(accumulate((len(part) for part in parts), initial=0)),
        tuple(tokens for part in parts for tokens in part._tokens),
    )


def _sum(each: list[Counts]) -> Counts:
    totals = {
        name: sum(getattr(counts, name) for counts in each)
        for name in Counts.__struct_fields__
        if name not in ("longest", "fingerprint")
    }
    prints = "\n".join(counts.fingerprint for counts in each)
    fingerprint = hashlib.sha256(prints.encode()).hexdigest()
    return Counts(**totals, longest=max(counts.longest for counts in each), fingerprint=fingerprint)
