"""`ftui cache`: list the tokenised rows on this disk, or delete those that nobody uses."""

import re
import shutil
import time
from pathlib import Path

from ftui import units
from ftui.cli.terminal import table
from ftui.dataset.token_cache import CacheEntry, delete_entry, entries, folder_size, sweep
from ftui.errors import UsageError
from ftui.system.user_folders import cache_folder
from ftui.text import shown

HEADINGS = ("tokens of", "used", "rows", "tokens", "size")
DEFAULT_AGE = "30d"
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_AGE = re.compile(r"(\d+)([hdw])")


def cache(prune: bool, older_than: str | None, everything: bool) -> int:
    """`ftui cache`: list the entries, the one used last first, and their total size; or delete some.

    Raises:
        UsageError: the options do not go together.
    """
    if prune:
        return prune_cache(older_than, everything=everything)
    if older_than or everything:
        raise UsageError("--older-than and --all only go with --prune.", hint="ftui cache --prune --all")
    folder = cache_folder()
    cached = entries(folder)
    now = time.time()
    if cached:
        rows = [HEADINGS, *(_row(entry, now) for entry in cached)]
        for line in table(rows, (2, 3, 4), width=shutil.get_terminal_size().columns):
            print(line)
    total = units.size(sum(entry.num_bytes for entry in cached))
    print(f"{_number(len(cached))} of tokenised rows in {shown(str(folder))}, {total}")
    others = folder_size(folder / "models")
    if others:
        print(f"{units.size(others)} of unpacked models in {shown(str(folder / 'models'))}")
    return 0


def prune_cache(older_than: str | None, *, everything: bool) -> int:
    """`ftui cache --prune`: delete the entries not used for so long, or all; never one that is in use.

    Raises:
        UsageError: `older_than` is no time, or it is given with `everything`.
    """
    if everything and older_than is not None:
        raise UsageError("--older-than and --all are two wishes.", hint="Give one of them.")
    seconds = 0.0 if everything else _seconds(older_than or DEFAULT_AGE)
    folder, now = cache_folder(), time.time()
    gone = [entry for entry in entries(folder) if now - entry.last_used >= seconds and delete_entry(entry)]
    freed = sum(entry.num_bytes for entry in gone) + sweep(folder)
    print(f"{_number(len(gone))} deleted, {units.size(freed)} freed.")
    if left := entries(folder):
        in_use = sum(entry.is_used for entry in left)
        which = f", {in_use} of them in use by a running process" if in_use else ""
        print(f"{_number(len(left))} left, {units.size(sum(entry.num_bytes for entry in left))}{which}.")
    if gone:
        print("A run that needs one of them again, as a resumed one does, reads and tokenises its rows again.")
    return 0


def _row(entry: CacheEntry, now: float) -> tuple[str, ...]:
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
