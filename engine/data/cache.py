"""Rows tokenised once into flat files that are memory-mapped: more rows than memory, and a second start in no time."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from ftui.checkpoints import file_hash
from ftui.engine.data.encode import Encoder, Sequence
from ftui.engine.data.formats import detect
from ftui.engine.data.sources import Row, read_rows
from ftui.errors import DataError
from ftui.files import make_private_folder, open_private, replace_file, sync_path

BATCH = 512
FORM = 1  # raise it whenever the same rows would be encoded to other tokens


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
class Sequences:
    """All sequences of a data set. `lengths` and `num_targets` are int64 arrays with one entry per sequence."""

    counts: Counts
    lengths: np.ndarray
    num_targets: np.ndarray
    _starts: np.ndarray
    _ids: np.ndarray
    _targets: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sequence:
        piece = slice(self._starts[index], self._starts[index] + self.lengths[index])
        return Sequence(np.array(self._ids[piece]), np.array(self._targets[piece], dtype=bool))


def cache_folder(fallback: Path) -> Path:
    """$FTUI_CACHE, else ~/.cache/ftui, else `fallback` where the home cannot be written."""
    chosen = os.environ.get("FTUI_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) if chosen else Path(home) / "ftui"
    try:
        make_private_folder(folder)
    except OSError:
        return make_private_folder(fallback)
    return folder if os.access(folder, os.W_OK) else make_private_folder(fallback)


def tokenised(
    paths: Iterable[Path], form: str, encoder: Encoder, folder: Path, tick: Callable[[int], None]
) -> Sequences:
    """The sequences of these files, from the cache in `folder` where these bytes were tokenised in this way before.

    `tick(num_rows)` is called now and then while rows are read.

    Raises:
        DataError: see `read_rows` and `Encoder.encode`; also when no row has a learned token.
    """
    paths = tuple(paths)
    key = _key(paths, form, encoder)
    place = folder / "tokens" / key
    if not _is_whole(place):
        _build(paths, form, encoder, place, key, tick)
    return _open(place)


def _key(paths: tuple[Path, ...], form: str, encoder: Encoder) -> str:
    """Everything the tokens depend on: the bytes of the files, not their names; the tokenizer, not its folder."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.suffix.encode() + file_hash(path).encode())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.", hint="Check data.train, data.eval.") from error
    tokenizer = tokenizer_fingerprint(encoder.tokenizer)
    how = [FORM, form, encoder.stage, encoder.max_length, sorted(encoder.stops), tokenizer]
    digest.update(json.dumps(how).encode())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: object) -> str:
    """SHA-256 of a fast tokenizer's whole definition and its chat template."""
    backend = tokenizer.backend_tokenizer.to_str()  # type: ignore[attr-defined]
    template = tokenizer.chat_template or ""  # type: ignore[attr-defined]
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)  # type: ignore[attr-defined]
    return hashlib.sha256("\0".join([backend, str(template), special]).encode()).hexdigest()


class _Sink:
    """Writes sequences to the flat files and counts them."""

    def __init__(self, ids: BinaryIO, targets: BinaryIO) -> None:
        self._ids, self._targets = ids, targets
        self.lengths: list[int] = []
        self.num_targets: list[int] = []
        self.num_cut = self.num_without_target = 0

    def add(self, sequence: Sequence) -> None:
        self.num_cut += sequence.cut
        if not sequence.num_targets:
            self.num_without_target += 1
            return
        self._ids.write(sequence.input_ids.astype("<i4").tobytes())
        self._targets.write(sequence.targets.astype("u1").tobytes())
        self.lengths.append(len(sequence.input_ids))
        self.num_targets.append(sequence.num_targets)


def _build(
    paths: tuple[Path, ...], form: str, encoder: Encoder, place: Path, key: str, tick: Callable[[int], None]
) -> None:
    staged = make_private_folder(place.parent / f".partial-{secrets.token_hex(8)}")
    try:
        num_rows, sink = _fill(staged, paths, form, encoder, tick)
        lengths = np.asarray(sink.lengths, dtype="<i8")
        targets = np.asarray(sink.num_targets, dtype="<i8")
        if not len(lengths):
            raise DataError(
                f"None of the {num_rows} rows of {', '.join(map(str, paths))} has a token to learn.",
                hint="Are there assistant turns, and does data.max_length leave room for them?",
            )
        replace_file(staged / "lengths.bin", lengths.tobytes(), durable=True)
        replace_file(staged / "num_targets.bin", targets.tobytes(), durable=True)
        for name in ("ids.bin", "targets.bin"):
            sync_path(staged / name)  # after a power cut a file may be full-length and zero
        counts = Counts(
            num_rows, len(lengths), int(lengths.sum()), int(targets.sum()),
            sink.num_cut, sink.num_without_target, int(lengths.max()), key,
        )  # fmt: skip
        replace_file(staged / "counts.json", msgspec.json.encode(counts), durable=True)
        try:
            staged.rename(place)
        except OSError:  # something is there: another run was faster, or a power cut left a part
            if not _is_whole(place):
                shutil.rmtree(place, ignore_errors=True)
                staged.rename(place)
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone already when it was published


def _fill(
    staged: Path, paths: tuple[Path, ...], form: str, encoder: Encoder, tick: Callable[[int], None]
) -> tuple[int, _Sink]:
    num_rows = 0
    with (
        open(open_private(staged / "ids.bin", os.O_WRONLY), "wb") as ids,
        open(open_private(staged / "targets.bin", os.O_WRONLY), "wb") as targets,
    ):
        sink = _Sink(ids, targets)
        for batch, its_form in _batches(paths, form):
            for sequence in encoder.encode(batch, its_form):
                sink.add(sequence)
            num_rows += len(batch)
            tick(num_rows)
    return num_rows, sink


def _batches(paths: tuple[Path, ...], form: str) -> Iterable[tuple[list[Row], str]]:
    for path in paths:
        batch: list[Row] = []
        its_form = form
        for row in read_rows(path):
            if its_form == "auto":
                its_form = detect(row)
            batch.append(row)
            if len(batch) == BATCH:
                yield batch, its_form
                batch = []
        if batch:
            yield batch, its_form


def _is_whole(place: Path) -> bool:
    """Whether every file is there at its full length: a power cut can leave less than was written."""
    try:
        counts = msgspec.json.decode((place / "counts.json").read_bytes(), type=Counts)
        sizes = {
            "ids.bin": 4 * counts.num_tokens, "targets.bin": counts.num_tokens,
            "lengths.bin": 8 * counts.num_sequences, "num_targets.bin": 8 * counts.num_sequences,
        }  # fmt: skip
        return all((place / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, msgspec.DecodeError):
        return False


def _open(place: Path) -> Sequences:
    counts = msgspec.json.decode((place / "counts.json").read_bytes(), type=Counts)
    lengths = np.fromfile(place / "lengths.bin", dtype="<i8")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return Sequences(
        counts, lengths, np.fromfile(place / "num_targets.bin", dtype="<i8"), starts,
        np.memmap(place / "ids.bin", dtype="<i4", mode="r"), np.memmap(place / "targets.bin", dtype="u1", mode="r"),
    )  # fmt: skip
