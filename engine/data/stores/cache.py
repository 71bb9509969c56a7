"""Rows tokenised once: a second start, and one with another max_length, finds them in no time (see store.py)."""

import contextlib
import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ftui.dataset.token_cache import TOKENS, lock_entry, lock_partial, mark_used, prunable, sweep
from ftui.errors import DataError, DiskError, DiskFullError
from ftui.hardware.cpu import usable_cores
from ftui.system.files import make_private_folder
from ftui.system.volume import check_room, disk_error
from ftui.units import size

from ...models.files.fingerprints import file_hashes
from ...models.tokenizer import tokenizer_fingerprint
from ..facts.row_facts import FACTS
from ..files.blocks import BadRow, parse_block
from ..files.hub_dataset import HubRows
from ..files.streams import kind_of, printable
from ..sources import ResolvedSource
from ..tokens.encode import Encoder
from .integrity import verified_counts
from .reading_meter import Meter
from .store import Skipped, Store, StoreCounts, StoreWriter, map_store, publish
from .tasks import Tasks, as_skipped
from .worker_pool import encode_tasks

FORM = 11  # raise it whenever the same rows would be encoded to other tokens, or other facts be told of them
MOST_PROCESSES = 8  # each takes some 110 MiB; more are for the profile to ask for
SPARE = 1.1  # room asked for, of what the rows seen so far let expect
MORE_BAD_ROWS = 4  # that are named beside the first
SKIPPED = "data.on_bad_row"
SKIPPING = f'{SKIPPED} = "skip" leaves out and counts such rows.'


@dataclass(frozen=True)
class ReadOptions:
    """How rows are read. `skips` = rows that cannot be trained on are left out; else the first of them is an error.

    `num_processes` tokenise; `None` for one per core where that pays. One of them that gives no answer for
    `stall_seconds` is replaced; `None` for never.
    """

    skips: bool = False
    num_processes: int | None = None
    stall_seconds: float | None = None


def load_store(
    source: ResolvedSource, encoder: Encoder, folder: Path, report: Callable[[str], None],
    manner: ReadOptions | None = None, *, what: str = "tokenising",
) -> Store:  # fmt: skip
    """A source tokenised, from the cache in `folder` where the same rows were tokenised in this way before.

    `report(detail)` is called while rows are read; an exception that it raises ends that at once.

    Raises:
        DataError: a row that cannot be trained on (see ReadOptions), or a file that cannot be read, or that changed
            meanwhile.
        DiskError: no room for the tokens.
    """
    manner = manner or ReadOptions()
    encoder = replace(encoder, shape=source.shape)
    work = _Job(source, encoder, manner, Meter(source.places, report, what=what), folder, report)
    contents = work.contents()
    key = _key(work, contents)
    place = folder / TOKENS / key
    for _ in range(2):
        lock = lock_entry(place)  # before the look: what is held is not pruned
        if (counts := verified_counts(place, lambda: report("checking the tokens in the cache"))) is not None:
            mark_used(place)
            return map_store(place, _with_current_names(counts, source), lock)
        if lock is not None:
            report("the tokens in the cache are damaged: they are made again")
        _build(work, place, key, contents)
    raise DataError(
        f"{place} vanished while it was made, or cannot be read.",
        hint="Is the cache pruned just now? Start again. Is its disk failing? FTUI_CACHE moves it.",
    )


def _with_current_names(counts: StoreCounts, source: ResolvedSource) -> StoreCounts:
    """The same bytes may have been read under other names: rows that were left out stand where they are found now."""
    here = [printable(place) for place in source.places]
    names = dict(zip(counts.sources, here, strict=True))
    skipped = [_skipped_under(names[one.where.file], one) for one in counts.skipped]
    return msgspec.structs.replace(counts, sources=here, skipped=skipped)


def _skipped_under(name: str, one: Skipped) -> Skipped:
    where = msgspec.structs.replace(one.where, file=name)
    return msgspec.structs.replace(one, where=where, message=f"{name}{one.message.removeprefix(one.where.file)}")


def _key(work: "_Job", contents: list[str]) -> str:
    """Everything the tokens depend on: the bytes of the files, not their names; the tokenizer, not its folder."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content.encode() + b"\0")
    source, encoder, manner = work.source, work.encoder, work.manner
    shape = [sorted(source.shape.columns.items()), sorted(source.shape.roles.items())]
    how = [
        FORM, str(FACTS.descr), source.form, source.encoding, shape, manner.skips, encoder.stage, sorted(encoder.stops),
        encoder.loss_on, tokenizer_fingerprint(encoder.tokenizer),
    ]  # fmt: skip
    digest.update(json.dumps(how).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class _Job:
    """Rows that are to be read, and in what way."""

    source: ResolvedSource
    encoder: Encoder
    manner: ReadOptions
    meter: Meter
    folder: Path
    report: Callable[[str], None]

    def contents(self) -> list[str]:
        """What stands in each place now.

        Raises:
            DataError: one cannot be read.
        """
        return [one.fingerprint if isinstance(one, HubRows) else self._content(one) for one in self.source.places]

    def _content(self, path: Path) -> str:
        try:
            hashes = file_hashes([path], self.folder, lambda: self.report("looking whether the files have changed"))
        except OSError as error:
            words = f"{printable(path)} cannot be read: {error.strerror}."
            raise DataError(words, hint="Check data.train and data.eval.") from error
        return f"{kind_of(path)}{hashes[path]}"

    @property
    def size(self) -> int:
        return self.manner.num_processes or min(MOST_PROCESSES, usable_cores())

    def pays(self) -> bool:
        return self.manner.num_processes is not None or self.meter.pays(self.size)


def _build(work: _Job, place: Path, key: str, contents: list[str]) -> None:
    sweep(place.parent.parent)
    staged = place.parent / f".partial-{secrets.token_hex(8)}"
    with _disk_errors(staged):
        lock = lock_partial(make_private_folder(staged))
    try:
        with ExitStack() as stack:
            with _disk_errors(staged):
                sink, tasks = StoreWriter(staged, stack), Tasks(work.source)
            _fill(work, sink, tasks, staged)
            counts = sink.counts(
                forms=tasks.forms, confidence=tasks.confidence, sources=[printable(one) for one in work.source.places],
                fingerprint=key, empty=tasks.empty, unused=tasks.unused,
            )  # fmt: skip
        _refuse_changed(work, contents)
        with _disk_errors(staged):
            publish(staged, counts, place, lambda there: verified_counts(there, lambda: None) is not None)
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone already when it was published
        del lock


def _refuse_changed(work: _Job, contents: list[str]) -> None:
    """What was read of a file that changed meanwhile is neither what it was nor what it is: nobody must find it."""
    for place, before, now in zip(work.source.places, contents, work.contents(), strict=True):
        if before != now:
            raise DataError(
                f"{printable(place)} changed while its rows were read.", hint="Start again when nobody writes to it."
            )


def _fill(work: _Job, sink: StoreWriter, tasks: Tasks, staged: Path) -> None:
    tokenizer = staged / "tokenizer"
    portions = encode_tasks(
        iter(tasks), work.encoder, size=work.size, pays=work.pays, folder=tokenizer,
        stall_seconds=work.manner.stall_seconds, warn=work.report,
    )  # fmt: skip
    is_checked = False
    with contextlib.closing(portions):
        for task, portion in portions:
            if portion.skipped and not work.manner.skips:
                raise bad_rows_error(portion.skipped)
            with _disk_errors(staged):
                sink.add(portion)
            work.meter.took(task.block)
            if not is_checked and work.meter.share:
                is_checked = True
                _check_room(staged, sink.num_bytes, work.meter.share)
    shutil.rmtree(tokenizer, ignore_errors=True)
    if not sink.num_rows:
        raise _no_rows_error(work.source, sink)


def check_first_rows(source: ResolvedSource, *, skips: bool) -> None:
    """Refuse what `load_store` would refuse of the first rows of a source before it tokenises them.

    Raises:
        DataError: a file that cannot be read, without rows, or of no known form; with `skips` not for single rows.
    """
    first = next(iter(Tasks(source)))
    bad = [as_skipped(row, row.error()) for row in parse_block(first.block) if isinstance(row, BadRow)]
    if bad and not skips:
        raise bad_rows_error(bad)


def bad_rows_error(bad: Sequence[Skipped]) -> DataError:
    """The first of some bad rows with what to do about it, and the next few, so that they can be mended together."""
    first, others = bad[0], bad[1:]
    hint = first.hint if SKIPPED in first.hint else f"{first.hint} {SKIPPING}".strip()
    lines = [first.message, *(f"  {row.message}" for row in others[:MORE_BAD_ROWS])]
    if others:
        count = f"{len(others)} more were" if len(others) > 1 else "One more was"
        lines[0] += f" {count} found near it:"
    if len(others) > MORE_BAD_ROWS:
        lines.append(f"  and {len(others) - MORE_BAD_ROWS} more")
    return DataError("\n".join(lines), hint=hint)


@contextmanager
def _disk_errors(staged: Path, num_bytes: int | None = None) -> Iterator[None]:
    """Failed writes as errors that say what is free, what is needed and what can be deleted."""
    try:
        yield
    except (OSError, DiskFullError) as error:
        what, there = "Tokens could not be written", staged if staged.exists() else staged.parent.parent
        shortage = error if isinstance(error, DiskError) else disk_error(error, what, there, num_bytes)
        freed = prunable(staged.parent.parent)
        if isinstance(shortage, DiskFullError) and freed:
            shortage.hint = (
                f"`ftui cache --prune --all` frees {size(freed)} of other rows' tokens; FTUI_CACHE moves them."
            )
        raise shortage from error


def _check_room(staged: Path, written: int, share: float) -> None:
    """See that what is still to come has room, from what the first rows took.

    Raises:
        DiskFullError: it has none.
    """
    needed = int(SPARE * written * (1 - share) / share)
    with _disk_errors(staged, needed):
        check_room(staged, needed)


def _no_rows_error(source: ResolvedSource, sink: StoreWriter) -> DataError:
    names = ", ".join(map(printable, source.places))
    first = f" The first: {sink.skipped[0].message}" if sink.skipped else ""
    hint = (sink.skipped[0].hint if sink.skipped else "") or "Are data.format and data.columns right?"
    return DataError(f"All {sink.num_skipped} rows of {names} were left out.{first}", hint=hint)
