"""Rows tokenised once into flat files that are memory-mapped: more rows than memory, and a second start in no time."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np

from ftui.checkpoints import file_hash
from ftui.engine.data.encode import Encoder, Sequence
from ftui.engine.data.formats import detect
from ftui.engine.data.hub_rows import HubRows
from ftui.engine.data.rows import Row
from ftui.engine.data.sequences import FILES, Counts, Sequences, counts_in, mapped
from ftui.engine.data.sources import Place, read_rows
from ftui.engine.data.streams import kind_of
from ftui.errors import DataError
from ftui.files import make_private_folder, open_private, replace_file, sync_path

BATCH = 512
FORM = 3  # raise it whenever the same rows would be encoded to other tokens


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
    places: Iterable[Place], form: str, encoder: Encoder, folder: Path, tick: Callable[[int], None]
) -> Sequences:
    """The sequences of a source, from the cache in `folder` where the same rows were tokenised in this way before.

    `tick(num_rows)` is called now and then while rows are read.

    Raises:
        DataError: see `read_rows` and `Encoder.encode`; also when no row has a learned token.
    """
    places = tuple(places)
    key = _key(places, form, encoder)
    place = folder / "tokens" / key
    counts = counts_in(place)
    if counts is None:
        _build(places, form, encoder, place, key, tick)
        counts = counts_in(place)
        assert counts is not None, "it was built whole"
    return mapped(place, counts)


def _key(places: tuple[Place, ...], form: str, encoder: Encoder) -> str:
    """Everything the tokens depend on: the bytes of the files, not their names; the tokenizer, not its folder."""
    digest = hashlib.sha256()
    for place in places:
        try:
            content = place.fingerprint if isinstance(place, HubRows) else f"{kind_of(place)}{file_hash(place)}"
        except OSError as error:
            words = f"{place} cannot be read: {error.strerror}."
            raise DataError(words, hint="Check data.train and data.eval.") from error
        digest.update(content.encode() + b"\0")
    tokenizer = tokenizer_fingerprint(encoder.tokenizer)
    how = [FORM, form, encoder.stage, encoder.max_length, sorted(encoder.stops), encoder.loss_on, tokenizer]
    digest.update(json.dumps(how).encode())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: object) -> str:
    """SHA-256 of a fast tokenizer's whole definition and its chat template."""
    backend = tokenizer.backend_tokenizer.to_str()  # type: ignore[attr-defined]
    template = tokenizer.chat_template or ""  # type: ignore[attr-defined]
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)  # type: ignore[attr-defined]
    return hashlib.sha256("\0".join([backend, str(template), special]).encode()).hexdigest()


class _Sink:
    """Writes sequences to the flat files in a folder and counts them; holds none of them in memory."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._files = {
            name: stack.enter_context(os.fdopen(open_private(folder / name, os.O_WRONLY), "wb", 1 << 20))
            for name in FILES
        }
        self.num_rows = self.num_sequences = self.num_tokens = self.num_target_tokens = 0
        self.num_cut = self.num_without_target = self.longest = 0

    def add(self, sequence: Sequence) -> None:
        """`sequence.row` is counted from the first row of its batch, which begins at `num_rows`."""
        self.num_cut += sequence.cut
        if not sequence.num_targets:
            self.num_without_target += 1
            return
        length, num_targets = len(sequence.input_ids), sequence.num_targets
        written = {
            "ids.bin": sequence.input_ids, "targets.bin": sequence.targets, "lengths.bin": length,
            "num_targets.bin": num_targets, "rows.bin": self.num_rows + sequence.row,
        }  # fmt: skip
        for name, value in written.items():
            self._files[name].write(np.asarray(value, dtype=FILES[name]).tobytes())
        self.num_sequences += 1
        self.num_tokens += length
        self.num_target_tokens += num_targets
        self.longest = max(self.longest, length)

    def counts(self, fingerprint: str) -> Counts:
        return Counts(
            self.num_rows, self.num_sequences, self.num_tokens, self.num_target_tokens, self.num_cut,
            self.num_without_target, self.longest, fingerprint,
        )  # fmt: skip


def _build(
    places: tuple[Place, ...], form: str, encoder: Encoder, place: Path, key: str, tick: Callable[[int], None]
) -> None:
    staged = make_private_folder(place.parent / f".partial-{secrets.token_hex(8)}")
    try:
        counts = _fill(staged, places, form, encoder, tick).counts(key)
        if not counts.num_sequences:
            raise DataError(
                f"None of the {counts.num_rows} rows of {', '.join(map(str, places))} has a token to learn.",
                hint="Are there assistant turns, and does data.max_length leave room for them?",
            )
        for name in FILES:
            sync_path(staged / name)  # after a power cut a file may be full-length and zero
        replace_file(staged / "counts.json", msgspec.json.encode(counts), durable=True)
        try:
            staged.rename(place)
        except OSError:  # something is there: another run was faster, or a power cut left a part
            if counts_in(place) is None:
                shutil.rmtree(place, ignore_errors=True)
                staged.rename(place)
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone already when it was published


def _fill(staged: Path, places: tuple[Place, ...], form: str, encoder: Encoder, tick: Callable[[int], None]) -> _Sink:
    with ExitStack() as stack:
        sink = _Sink(staged, stack)
        for batch, its_form in _batches(places, form):
            for sequence in encoder.encode(batch, its_form):
                sink.add(sequence)
            sink.num_rows += len(batch)
            tick(sink.num_rows)
    return sink


def _batches(places: tuple[Place, ...], form: str) -> Iterator[tuple[list[Row], str]]:
    for place in places:
        batch: list[Row] = []
        its_form = form
        for row in read_rows(place):
            if its_form == "auto":
                its_form = detect(row)
            batch.append(row)
            if len(batch) == BATCH:
                yield batch, its_form
                batch = []
        if batch:
            yield batch, its_form
