"""The files of rows in a folder and the folders in it: links are followed, and every file and folder is taken once."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import DataError
from ftui.system.input_files import name_special, read_input
from ftui.text import toml_value

from .splits import SAVED_SPLITS, WORDS, choose_split, find_splits
from .streams import KINDS, PACKED, kind_of, printable

FEW = 3  # files that a note names
SAVED_FILES = "state.json"
NO_ROWS = ("config.json", "dataset_info.json", "dataset_infos.json", SAVED_SPLITS, SAVED_FILES)  # about the rows


@dataclass(frozen=True)
class Listing:
    """Files in the order of their names, and what a person should know of those that are not read."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def kinds_of_files() -> str:
    return f"{', '.join(KINDS)} files, also with {' or '.join(PACKED)} appended"


def list_files(
    path: Path, *, rows_only: bool = False, split: str | None = None, subset: str | None = None,
    evaluation: bool = False,
) -> Listing:  # fmt: skip
    """The file, or the files of rows in the folder: of one split where splits are known (see `choose_split`).

    With `rows_only` text files beside others are left out.

    Raises:
        DataError: a folder without a file of rows or that cannot be read, or links to files of rows that are not there;
            no such split or subset.
    """
    if not path.is_dir():
        _refuse_special([path])
        return Listing((path,))
    there, circles = _walk(path)
    broken = [one for one in there if not one.exists()]
    if lost := [one for one in broken if kind_of(one)]:
        raise DataError(
            f"{first_names(lost)}: {'this link leads' if len(lost) == 1 else 'these links lead'} to nothing.",
            hint="Bring back what was there, or delete the link." if len(lost) == 1 else "Bring back what was there.",
        )
    _refuse_special([one for one in there if kind_of(one)])
    files, copies = _deduplicate([one for one in there if kind_of(one) and one.is_file() and not _is_cached(one)])
    texts = [one for one in files if kind_of(one) == ".txt"]
    texts = texts if rows_only and len(texts) < len(files) else []
    files = [one for one in files if one not in set(texts)]
    if not files:
        raise DataError(
            f"There is no file of rows in {printable(path)}.", hint=f"Rows are read from {kinds_of_files()}."
        )
    reasons = {
        "a link to nothing, passed over": broken,
        "a link to what is read anyway, passed over": circles + copies,
        "text beside files of rows, not trained on": texts,
    }
    notes = [f"{first_names(left)}: {reason}" for reason, left in reasons.items() if left]
    chosen, others = _files_of_split(path, files, split, subset, evaluation=evaluation)
    return Listing(tuple(chosen), (*notes, *others))


def _refuse_special(files: Iterable[Path]) -> None:
    """Raises `DataError` for a FIFO or a device: to read it might never end."""
    if special := [one for one in files if name_special(one)]:
        what = name_special(special[0])
        raise DataError(f"{first_names(special)}: {what}, not a regular file.", hint="Name or leave only files.")


def _files_of_split(
    path: Path, files: list[Path], split: str | None, subset: str | None, *, evaluation: bool
) -> tuple[list[Path], list[str]]:
    """The files of the split that is meant, and notes on the others, with the way to evaluate on them."""
    name = printable(path)
    splits = find_splits(path, files, subset)
    if not splits:
        if split is not None:
            raise DataError(
                f"{name}: split is {split!r}, and neither a card nor names of files tell the splits of this folder.",
                hint="Leave split out to read all of it, or list the files in data.train.",
            )
        return files, []
    chosen = choose_split(name, split, list(splits), evaluation=evaluation)
    if not splits[chosen]:
        raise DataError(
            f"{name}: of the split {chosen!r} that its card names no file of rows is there.",
            hint="Is it a whole copy? Download it again, or set split to another one.",
        )
    if evaluation:
        return splits[chosen], []
    notes = [
        f'{first_names(left)}: the split "{other}", not trained on; to evaluate on it: '
        f"data.eval = {toml_value(({'path': name, 'split': other} | ({'subset': subset} if subset else {}),))}"
        for other, left in splits.items()
        if left and other != chosen
    ]
    members = {file for its in splits.values() for file in its}
    if len(splits) == 1 and not split and WORDS.get(chosen.lower()) in ("validation", "test"):
        notes.append(f'{name}: its only split is "{chosen}", and it is trained on')
    rest = [file for file in files if file not in members]
    return splits[chosen], [*notes, *([f"{first_names(rest)}: of no split, not trained on"] if rest else [])]


def first_names(places: Iterable[object]) -> str:
    """The first of them by name, and how many more there are."""
    each = list(places)
    return ", ".join(map(printable, each[:FEW])) + (f" and {len(each) - FEW} more" if each[FEW:] else "")


def _walk(top: Path) -> tuple[list[Path], list[Path]]:
    """Everything but folders whose path has no hidden part, sorted; and links to folders that were not entered.

    Links come last, so that what lies in the folder is found by its own name. One that leads to a folder it lies in, or
    to one that was entered, is not.
    """
    paths: list[Path] = []
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
                paths.append(path)
            else:
                (links if path.is_symlink() else folders).append(path)
    return sorted(paths, key=lambda one: one.relative_to(top).as_posix()), passed


def _is_cached(file: Path) -> bool:
    """Whether `datasets` keeps it beside rows: a cached step, or a file that a saved data set does not name."""
    if kind_of(file) != ".arrow":
        return False
    try:
        state = json.loads(read_input(file.parent / SAVED_FILES))
        names = [entry["filename"] for entry in state["_data_files"]]
    except FileNotFoundError:
        return file.name.startswith("cache-")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{printable(file.parent / SAVED_FILES)} cannot be read: {error}.") from error
    if missing := next((name for name in names if not (file.parent / name).exists()), None):
        raise DataError(
            f"{printable(file.parent)}: its {SAVED_FILES} names {missing}, which is not there.", hint="Copy it again."
        )
    return file.name not in names


def _is_inside(path: Path, real: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), real]) == real


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] != "." and path.name not in NO_ROWS)
    except OSError as error:
        words = f"{printable(folder)} cannot be read: {error.strerror}."
        raise DataError(words, hint="Check data.train and data.eval.") from error


def _deduplicate(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Each file once, by its own name where it has one here, and the links that lead to the same."""
    names: dict[str, Path] = {}
    for file in sorted(files, key=lambda one: one.is_symlink()):
        names.setdefault(os.path.realpath(file), file)
    chosen = set(names.values())
    return [one for one in files if one in chosen], [one for one in files if one not in chosen]
