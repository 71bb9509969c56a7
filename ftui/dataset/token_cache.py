"""The cache of tokenised rows: where it is, what is in it, and who uses it.

An entry is a folder of its own (engine/data/stores/store.py); whoever uses it holds a lock on its counts.json.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

TOKENS = "tokens"
COUNTS = "counts.json"
STALE_SECONDS = 3600.0  # what is being written is written to more often, but by a run that is paused


class _StoredCounts(msgspec.Struct, frozen=True):
    """The part of an entry's counts.json that is read here."""

    num_rows: int = 0
    num_tokens: int = 0
    sources: list[str] = []


@dataclass(frozen=True)
class CacheEntry:
    """Tokens of one source; `last_used` is Unix time. One without `sources` was made by an older ftui."""

    folder: Path
    sources: tuple[str, ...]
    num_rows: int
    num_tokens: int
    num_bytes: int
    last_used: float
    is_used: bool


class EntryLock:
    """A lock on an entry for as long as this object lives."""

    def __init__(self, descriptor: int) -> None:
        weakref.finalize(self, os.close, descriptor)


def lock_entry(folder: Path) -> EntryLock | None:
    """A lock that keeps an entry from being pruned; `None` where there is no such entry."""
    try:
        descriptor = os.open(folder / COUNTS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # whoever looks for the entry says what is wrong with it
        return None
    with contextlib.suppress(OSError):  # on a volume without locks nobody is known to use it
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return EntryLock(descriptor)


def lock_partial(folder: Path) -> EntryLock:
    """A lock on a folder that is being filled: what a kill leaves of one is free."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # on a volume without locks its age alone says that it is abandoned
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return EntryLock(descriptor)


def mark_used(folder: Path) -> None:
    """Note that an entry is used now."""
    with contextlib.suppress(OSError):  # on a volume that may only be read nothing is pruned either
        os.utime(folder / COUNTS)


def entries(cache: Path) -> list[CacheEntry]:
    """All of them, the one used last first."""
    present = [_entry(path) for path in _folders(cache) if (path / COUNTS).is_file()]
    return sorted(filter(None, present), key=lambda entry: -entry.last_used)


def prunable(cache: Path) -> int:
    """Bytes of the entries that nobody uses now."""
    return sum(entry.num_bytes for entry in entries(cache) if not entry.is_used)


def _folders(cache: Path) -> list[Path]:
    tokens = cache / TOKENS
    return [path for path in tokens.iterdir() if path.is_dir() and path.name[0] != "."] if tokens.is_dir() else []


def _entry(folder: Path) -> CacheEntry | None:
    """`None` where another process has deleted it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return _read_entry(folder)
    return None


def _read_entry(folder: Path) -> CacheEntry:
    """Raises `FileNotFoundError` when it is gone."""
    try:
        counts = msgspec.json.decode((folder / COUNTS).read_bytes(), type=_StoredCounts)
    except (OSError, msgspec.DecodeError):
        counts = _StoredCounts()
    return CacheEntry(
        folder, tuple(counts.sources), counts.num_rows, counts.num_tokens, folder_size(folder),
        (folder / COUNTS).stat().st_mtime, _is_used(folder),
    )  # fmt: skip


def folder_size(folder: Path) -> int:
    """Bytes of the files in a folder; other processes may delete and write some meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _is_used(folder: Path) -> bool:
    with _sole(folder) as is_free:
        return not is_free


@contextlib.contextmanager
def _sole(folder: Path) -> Iterator[bool]:
    """Whether nobody uses an entry, and nobody begins to in the block. Without locks nobody is known to."""
    with (folder / COUNTS).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True
        else:
            yield True


def delete_entry(entry: CacheEntry) -> bool:
    """Delete it unless a running process uses it; whether it was deleted."""
    trash = entry.folder.with_name(f".trash-{secrets.token_hex(8)}")
    try:
        with _sole(entry.folder) as is_free:
            if is_free:
                entry.folder.rename(trash)  # nobody finds half an entry
                shutil.rmtree(trash, ignore_errors=True)
    except FileNotFoundError:  # another process was faster
        return False
    return is_free


def sweep(cache: Path) -> int:
    """Delete what a kill left behind; returns its bytes."""
    freed = 0
    for folder in [*(cache / TOKENS).glob(".partial-*"), *(cache / TOKENS).glob(".trash-*")]:
        with contextlib.suppress(FileNotFoundError):  # it was published or deleted meanwhile
            newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            if time.time() - newest > STALE_SECONDS and _is_abandoned(folder):
                freed += folder_size(folder)
                shutil.rmtree(folder, ignore_errors=True)
    return freed


def _is_abandoned(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return True
