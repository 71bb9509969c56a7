"""The cache of tokenised rows: where it lies, and `ftui cache`, which lists and prunes it.

An entry is a folder of its own (engine/data/stores/store.py); whoever uses it holds a lock on its counts.json.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ftui import units
from ftui.cli.runs import table
from ftui.errors import UsageError
from ftui.system.files import make_private_folder
from ftui.text import shown

TOKENS = "tokens"
COUNTS = "counts.json"
DEFAULT_AGE = "30d"
STALE_SECONDS = 3600.0  # what is being written is written to more often, but by a run that is held
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_AGE = re.compile(r"(\d+)([hdw])")


def cache_folder(fallback: Path | None = None) -> Path:
    """$FTUI_CACHE, else ~/.cache/ftui, else `fallback` where the home cannot be written."""
    chosen = os.environ.get("FTUI_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) if chosen else Path(home) / "ftui"
    if fallback is None:
        return folder
    try:
        make_private_folder(folder)
    except OSError:
        return make_private_folder(fallback)
    return folder if os.access(folder, os.W_OK) else make_private_folder(fallback)


class _Counted(msgspec.Struct, frozen=True):
    """What is read here of an entry's counts.json."""

    num_rows: int = 0
    num_tokens: int = 0
    sources: list[str] = []


@dataclass(frozen=True)
class Entry:
    """Tokens of one source; `last_used` is Unix time. One without `sources` was made by an older ftui."""

    folder: Path
    sources: tuple[str, ...]
    num_rows: int
    num_tokens: int
    num_bytes: int
    last_used: float
    is_used: bool


class Held:
    """A lock on an entry for as long as this object lives."""

    def __init__(self, descriptor: int) -> None:
        weakref.finalize(self, os.close, descriptor)


def held(folder: Path) -> Held | None:
    """`None` where there is no such entry."""
    try:
        descriptor = os.open(folder / COUNTS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # whoever looks for the entry says what is wrong with it
        return None
    with contextlib.suppress(OSError):  # on a volume without locks nobody is known to use it
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return Held(descriptor)


def claimed(folder: Path) -> Held:
    """A lock on a folder that is being filled: what a kill leaves of one is free."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # on a volume without locks its age alone says that it is abandoned
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Held(descriptor)


def used(folder: Path) -> None:
    """Note that an entry is used now."""
    with contextlib.suppress(OSError):  # on a volume that may only be read nothing is pruned either
        os.utime(folder / COUNTS)


def entries(cache: Path) -> list[Entry]:
    """All of them, the one used last first."""
    found = [_entry(path) for path in _folders(cache) if (path / COUNTS).is_file()]
    return sorted(filter(None, found), key=lambda entry: -entry.last_used)


def prunable(cache: Path) -> int:
    """Bytes of the entries that nobody uses now."""
    return sum(entry.num_bytes for entry in entries(cache) if not entry.is_used)


def print_cache() -> int:
    """`ftui cache`"""
    cache = cache_folder()
    found = entries(cache)
    now = time.time()
    if found:
        rows = [_row(entry, now) for entry in found]
        for line in table([("tokens of", "used", "rows", "tokens", "size"), *rows], shutil.get_terminal_size().columns):
            print(line)
    total = units.size(sum(entry.num_bytes for entry in found))
    print(f"{_number(len(found))} of tokenised rows in {shown(str(cache))}, {total}")
    others = _bytes_in(cache / "models")
    if others:
        print(f"{units.size(others)} of unpacked models in {shown(str(cache / 'models'))}")
    return 0


def prune(older_than: str | None, *, everything: bool) -> int:
    """`ftui cache --prune`: delete the entries not used for so long, or all; never one that is in use.

    Raises:
        UsageError: `older_than` is no time, or it is given with `everything`.
    """
    if everything and older_than is not None:
        raise UsageError("--older-than and --all are two wishes.", hint="Give one of them.")
    seconds = 0.0 if everything else _seconds(older_than or DEFAULT_AGE)
    cache, now = cache_folder(), time.time()
    gone = [entry for entry in entries(cache) if now - entry.last_used >= seconds and _deleted(entry)]
    freed = sum(entry.num_bytes for entry in gone) + sweep(cache)
    print(f"{_number(len(gone))} deleted, {units.size(freed)} freed.")
    if left := entries(cache):
        in_use = sum(entry.is_used for entry in left)
        which = f", {in_use} of them in use by a living process" if in_use else ""
        print(f"{_number(len(left))} left, {units.size(sum(entry.num_bytes for entry in left))}{which}.")
    if gone:
        print("A run that needs one of them again, as a resumed one does, reads and tokenises its rows again.")
    return 0


def _folders(cache: Path) -> list[Path]:
    tokens = cache / TOKENS
    return [path for path in tokens.iterdir() if path.is_dir() and path.name[0] != "."] if tokens.is_dir() else []


def _entry(folder: Path) -> Entry | None:
    """`None` where another process has deleted it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return _looked_at(folder)
    return None


def _looked_at(folder: Path) -> Entry:
    """Raises `FileNotFoundError` when it is gone."""
    try:
        counted = msgspec.json.decode((folder / COUNTS).read_bytes(), type=_Counted)
    except (OSError, msgspec.DecodeError):
        counted = _Counted()
    return Entry(
        folder, tuple(counted.sources), counted.num_rows, counted.num_tokens, _bytes_in(folder),
        (folder / COUNTS).stat().st_mtime, _is_used(folder),
    )  # fmt: skip


def _bytes_in(folder: Path) -> int:
    """Of the files there are; others delete and write some at any time."""
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


def _deleted(entry: Entry) -> bool:
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
                freed += _bytes_in(folder)
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


def _row(entry: Entry, now: float) -> tuple[str, ...]:
    names = [_beside(source) for source in entry.sources]
    name = f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}" if names else "(by an older ftui)"
    when = "now" if entry.is_used else f"{units.duration(max(0.0, now - entry.last_used))} ago"
    return (
        shown(name), when, units.amount(entry.num_rows), units.amount(entry.num_tokens), units.size(entry.num_bytes),
    )  # fmt: skip


def _beside(source: str) -> str:
    """A file with the folder it is in, for many are called train.jsonl; a data set of the hub as it is called."""
    return "/".join(Path(source).parts[-2:]) if source.startswith("/") else source


def _number(entries: int) -> str:
    return "1 entry" if entries == 1 else f"{entries} entries"


def _seconds(age: str) -> float:
    if match := _AGE.fullmatch(age):
        return int(match[1]) * _SECONDS[match[2]]
    raise UsageError(f"--older-than {age}: no such time.", hint="A number of hours, days or weeks: 12h, 30d, 8w.")
