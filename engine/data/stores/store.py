"""Tokenised rows as flat files mapped into memory: more of them than memory holds.

    ids.bin targets.bin                      one entry per token: its id; whether it is trained on
    lengths.bin num_targets.bin rows.bin     one per sequence; `rows` is the number of the row it was made of, from 0
    labels.bin margins.bin                   one per sequence: see `Sequence.label` and `Sequence.margin`
    facts.bin                                one per row (facts/row_facts.py)
    counts.json                              what was counted, and the checksums of all; written last

Sequences stand here as long as they are: how they are cut is a view of them (sequences.py).
"""

import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from ftui.dataset.report import RowLocation
from ftui.dataset.token_cache import EntryLock
from ftui.system.files import open_private, replace_file, sync_path, write_all

from ..facts.row_facts import FACTS
from ..tokens.encode import Sequence

PER_TOKEN: dict[str, np.dtype] = {"ids.bin": np.dtype("<i4"), "targets.bin": np.dtype("u1")}
PER_SEQUENCE: dict[str, np.dtype] = {
    "lengths.bin": np.dtype("<i4"),
    "num_targets.bin": np.dtype("<i4"),
    "rows.bin": np.dtype("<i4"),
    "labels.bin": np.dtype("i1"),
    "margins.bin": np.dtype("<f4"),
}
FILES: dict[str, np.dtype] = PER_TOKEN | PER_SEQUENCE | {"facts.bin": FACTS}
COUNTS = "counts.json"
EXAMPLES = 20  # rows that were left out, kept with their reasons
_ROWS = 1 << 14  # whose facts are read at once
_SPANS = 512  # sequences whose targets are read at once


class Skipped(msgspec.Struct, frozen=True):
    """A row that was left out. `message` and `hint` are those of the error it would be."""

    where: RowLocation
    reason: str
    message: str
    hint: str = ""


class StoreCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one source. `num_skipped` rows were left out: `num_rows` and all else count the others.

    `forms` are those of its files, in their order; `confidence` (0..1) is the least sure of them. `skipped` are the
    first of the rows that were left out. `scripts` are letters by script. `sources` are the names of the files when it
    was made, `empty` the numbers of those without a row. `unused` are columns nobody reads. The fingerprint is that
    of everything the tokens depend on. `checks` are the CRC-32 of each file, `seal` that of all other counts.
    """

    num_rows: int
    num_skipped: int
    num_sequences: int
    num_tokens: int
    num_target_tokens: int
    longest: int
    forms: list[str]
    confidence: float
    skipped: list[Skipped]
    scripts: dict[str, int]
    sources: list[str]
    fingerprint: str
    empty: list[int] = []
    unused: list[str] = []
    checks: dict[str, int] = {}
    seal: int = 0

    @property
    def form(self) -> str:
        """In words; several where the files differ."""
        return ", ".join(dict.fromkeys(filter(None, self.forms)))


class EncodedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What became of some rows in a row: the bytes for the files. Its `rows.bin` counts from the first of them."""

    num_rows: int
    files: dict[str, bytes]
    skipped: list[Skipped] = []
    scripts: dict[str, int] = {}


@dataclass(frozen=True)
class Store:
    """One source, its files mapped. The module's docstring says what each array is."""

    folder: Path
    counts: StoreCounts
    lengths: np.ndarray
    num_targets: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    margins: np.ndarray
    facts: np.ndarray
    ids: np.ndarray
    targets: np.ndarray
    lock: EntryLock | None = field(default=None, repr=False)
    """As long as it lives nobody prunes the files."""

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each sequence begins among the tokens (int64)."""
        starts: np.ndarray = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        return starts

    def __getitem__(self, index: int) -> Sequence:
        """A whole sequence."""
        whole = self.cut(int(self.starts[index]), int(self.starts[index]) + int(self.lengths[index]))
        return replace(whole, label=int(self.labels[index]), margin=float(self.margins[index]))

    def cut(self, start: int, end: int) -> Sequence:
        """The tokens from `start` to before `end`."""
        return Sequence(np.array(self.ids[start:end]), np.array(self.targets[start:end], dtype=bool))

    def tokens(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids and which are trained on of the tokens in `spans` (n, 2), one after another, with plain reads."""
        values = []
        for name, kind in PER_TOKEN.items():
            with (self.folder / name).open("rb", buffering=0) as file:
                size, descriptor = kind.itemsize, file.fileno()
                read = [os.pread(descriptor, size * (end - start), size * start) for start, end in spans.tolist()]
            values.append(np.frombuffer(b"".join(read), kind))
        return values[0], values[1].astype(bool)

    def count_trained(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The number of trained tokens (int32) in each span of tokens; the spans ascend and do not overlap.

        One that ends before it begins is empty: the span behind the first token of a sequence that has none.
        Read with plain reads, too.
        """
        values = np.zeros(len(starts), dtype=np.int32)
        for span, begins, stops, read in self._read_spans(np.minimum(starts, ends), ends):
            bounds = np.stack([begins, stops], axis=1).reshape(-1)
            sums = np.add.reduceat(np.append(read, np.uint8(0)), bounds, dtype=np.int32)[::2]
            values[span] = np.where(stops > begins, sums, 0)
        return values

    def first_trained(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Where (int32, from its start) the first trained token of each span is: each has one. Spans as above."""
        values = np.zeros(len(starts), dtype=np.int32)
        for span, begins, _, read in self._read_spans(starts, ends):
            trained = np.flatnonzero(read)
            values[span] = trained[np.searchsorted(trained, begins)] - begins
        return values

    def _read_spans(
        self, starts: np.ndarray, ends: np.ndarray
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
        """Some spans after another: which they are, where they begin and end among the marks read, and these."""
        for first in range(0, len(starts), _SPANS):
            span = slice(first, first + _SPANS)
            base, end = int(starts[first]), int(ends[span].max())
            read = np.fromfile(self.folder / "targets.bin", "u1", max(0, end - base), offset=base)
            yield span, starts[span] - base, ends[span] - base, read


def read_column(stores: Iterable[Store], name: str) -> np.ndarray:
    """One of the `FACTS` of each row, store after store, with plain reads: mapped pages would count as memory."""
    stores = list(stores)
    values = np.empty(sum(store.counts.num_rows for store in stores), dtype=FACTS[name])
    start = 0
    for store in stores:
        with (store.folder / "facts.bin").open("rb") as file:
            while len(read := np.fromfile(file, FACTS, _ROWS)):
                values[start : start + len(read)] = read[name]
                start += len(read)
    return values


def read_counts(folder: Path) -> StoreCounts | None:
    """What was counted, if every file is there at its full length: a power cut can leave less than was written.

    integrity.py checks whether they hold what was written.
    """
    try:
        counts = msgspec.json.decode((folder / COUNTS).read_bytes(), type=StoreCounts)
        if counts != _seal(counts):
            return None
        for name, kind in FILES.items():
            if (folder / name).stat().st_size != _number(counts, name) * kind.itemsize:
                return None
    except (OSError, msgspec.DecodeError):
        return None
    return counts


def _seal(counts: StoreCounts) -> StoreCounts:
    bare = msgspec.structs.replace(counts, seal=0)
    return msgspec.structs.replace(bare, seal=zlib.crc32(msgspec.json.encode(bare)))


def _number(counts: StoreCounts, name: str) -> int:
    """Entries of a file."""
    if name in PER_TOKEN:
        return counts.num_tokens
    return counts.num_sequences if name in PER_SEQUENCE else counts.num_rows


def map_store(folder: Path, counts: StoreCounts, lock: EntryLock | None = None) -> Store:
    """What stands in a folder that is whole."""
    files = {
        name: np.memmap(folder / name, dtype=kind, mode="r") if _number(counts, name) else np.zeros(0, kind)
        for name, kind in FILES.items()
    }
    arrays = {name.removesuffix(".bin"): array for name, array in files.items()}
    return Store(folder, counts, **arrays, lock=lock)


class StoreWriter:
    """Writes portions to the flat files in a folder and counts them; holds none of them in memory."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._files = {name: open_private(folder / name, os.O_WRONLY) for name in FILES}
        for descriptor in self._files.values():  # not buffered: closing would try again what a full disk refused
            stack.callback(os.close, descriptor)
        self.num_rows = self.num_skipped = self.num_bytes = 0
        self._num_sequences = self._num_tokens = self._num_target_tokens = self._longest = 0
        self.skipped: list[Skipped] = []
        self._scripts: Counter[str] = Counter()
        self._checks = dict.fromkeys(FILES, 0)

    def add(self, portion: EncodedBlock) -> None:
        """Raises `OSError` when the disk does not take it."""
        files = portion.files
        rows = np.frombuffer(files["rows.bin"], FILES["rows.bin"]) + np.int32(self.num_rows)
        for name, data in (files | {"rows.bin": rows.tobytes()}).items():
            write_all(self._files[name], data)
            self._checks[name] = zlib.crc32(data, self._checks[name])
            self.num_bytes += len(data)
        lengths = np.frombuffer(files["lengths.bin"], FILES["lengths.bin"])
        self._num_sequences += len(lengths)
        self._num_tokens += int(lengths.sum())
        self._num_target_tokens += int(np.frombuffer(files["num_targets.bin"], FILES["num_targets.bin"]).sum())
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self.num_rows += portion.num_rows
        self.num_skipped += len(portion.skipped)
        self.skipped += portion.skipped[: EXAMPLES - len(self.skipped)]
        self._scripts.update(portion.scripts)

    def counts(
        self,
        *,
        forms: list[str],
        confidence: float,
        sources: list[str],
        fingerprint: str,
        empty: list[int],
        unused: list[str],
    ) -> StoreCounts:
        counts = StoreCounts(
            num_rows=self.num_rows, num_skipped=self.num_skipped, num_sequences=self._num_sequences,
            num_tokens=self._num_tokens, num_target_tokens=self._num_target_tokens, longest=self._longest,
            forms=forms, confidence=confidence, skipped=self.skipped, scripts=dict(self._scripts), sources=sources,
            fingerprint=fingerprint, empty=empty, unused=unused, checks=self._checks,
        )  # fmt: skip
        return _seal(counts)


def publish(staged: Path, counts: StoreCounts, folder: Path, is_sound: Callable[[Path], bool]) -> None:
    """Let a filled folder appear whole under its final name; where another run was faster, its one stays if sound."""
    for name in FILES:
        sync_path(staged / name)  # after a power cut a file may be full-length and zero
    replace_file(staged / COUNTS, msgspec.json.encode(counts), durable=True)
    try:
        staged.rename(folder)
    except OSError:  # something is there: another run was faster, a power cut left a part, or it is damaged
        if not is_sound(folder):
            shutil.rmtree(folder, ignore_errors=True)
            staged.rename(folder)
