"""The files of rows in a folder and the folders in it: links are followed, and every file and folder is taken once."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import DataError

from .dataset_info import NAME
from .streams import KINDS, PACKED, kind_of, printable

FEW = 3  # files that a note names


@dataclass(frozen=True)
class Listing:
    """Files in the order of their names, and what a person should know of what was not taken."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def kinds_of_files() -> str:
    return f"{', '.join(KINDS)} files, also with {' or '.join(PACKED)} appended"


def list_files(path: Path, *, rows_only: bool = False) -> Listing:
    """The file, or all files of known kinds in the folder. With `rows_only` text files beside others are left out.

    Raises:
        DataError: a folder without a file of rows or that cannot be read, or links to files of rows that are not there.
    """
    if not path.is_dir():
        return Listing((path,))
    there, passed = _walk(path)
    broken = [one for one in there if not one.exists()]
    if lost := [one for one in broken if kind_of(one)]:
        raise DataError(
            f"{first_names(lost)}: {'this link leads' if len(lost) == 1 else 'these links lead'} to nothing.",
            hint="Bring back what was there, or delete the link." if len(lost) == 1 else "Bring back what was there.",
        )
    files, twice = _deduplicate([one for one in there if kind_of(one) and one.is_file()])
    texts = [one for one in files if kind_of(one) == ".txt"]
    texts = texts if rows_only and len(texts) < len(files) else []
    files = [one for one in files if one not in set(texts)]
    if not files:
        raise DataError(
            f"There is no file of rows in {printable(path)}.", hint=f"Rows are read from {kinds_of_files()}."
        )
    reasons = {
        "a link to nothing, passed over": broken,
        "a link to what is read anyway, passed over": passed + twice,
        "text beside files of rows, not trained on": texts,
    }
    return Listing(tuple(files), tuple(f"{first_names(left)}: {reason}" for reason, left in reasons.items() if left))


def first_names(places: Iterable[object]) -> str:
    """The first of them by name, and how many more there are."""
    each = list(places)
    return ", ".join(map(printable, each[:FEW])) + (f" and {len(each) - FEW} more" if each[FEW:] else "")


def _walk(top: Path) -> tuple[list[Path], list[Path]]:
    """Everything but folders whose path has no hidden part, sorted; and links to folders that were not entered.

    Links come last, so that what lies in the folder is found by its own name. One that leads to a folder it lies in, or
    to one that was entered, is not.
    """
    found: list[Path] = []
    passed: list[Path] = []
    entered: set[str] = set()
    folders, links = [top], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(folder)
        is_circle = folder != top and (_is_inside(top, real) or _is_inside(folder.parent, real))
        if real in entered or is_circle:
            passed.append(folder)
            continue
        entered.add(real)
        for path in _entries(folder):
            if not path.is_dir():
                found.append(path)
            else:
                (links if path.is_symlink() else folders).append(path)
    return sorted(found, key=lambda one: one.relative_to(top).as_posix()), passed


def _is_inside(path: Path, real: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), real]) == real


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] != "." and path.name != NAME)
    except OSError as error:
        words = f"{printable(folder)} cannot be read: {error.strerror}."
        raise DataError(words, hint="Check data.train and data.eval.") from error


def _deduplicate(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Each file once, by its own name where it has one here, and the links that lead to the same."""
    taken: dict[str, Path] = {}
    for file in sorted(files, key=lambda one: one.is_symlink()):
        taken.setdefault(os.path.realpath(file), file)
    chosen = set(taken.values())
    return [one for one in files if one in chosen], [one for one in files if one not in chosen]
