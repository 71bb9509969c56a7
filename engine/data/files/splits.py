"""The splits of a data set in a folder: by its card, by `save_to_disk`, or by the names of files and folders.

The words and their order are those of `datasets`, so that a cloned folder and its hub id mean the same rows.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from fsspec.utils import glob_translate  # type: ignore[import-untyped]
from huggingface_hub.repocard import metadata_load

from ftui.errors import DataError
from ftui.system.input_files import read_input

from .streams import kind_of, printable

CARD, SAVED_SPLITS = "README.md", "dataset_dict.json"
WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "holdout", "heldout"), "test"),
}
_WORD = re.compile(rf"(?<![^-._ 0-9/])(?:{'|'.join(WORDS)})(?![^-._ 0-9/])", re.IGNORECASE)
_SHARD = re.compile(r"(\w+(?:[.-]\w+)*?)-\d{5}-of-\d{5}")
Splits = dict[str, list[Path]]


def choose_split(name: str, split: str | None, splits: Sequence[str], *, evaluation: bool = False) -> str:
    """The split that is meant: the one named, else `train` (`validation` or `test` to evaluate on), else the only one.

    Raises:
        DataError: there is no such split, or several and none is named.
    """
    if split in splits:
        return str(split)
    meant = [split] if split else ["validation", "test", "train"] if evaluation else ["train"]
    for word in meant:
        for there in splits:
            if WORDS.get(there.lower(), there) == WORDS.get(word.lower(), word):
                return there
    if split is None and len(splits) == 1:
        return splits[0]
    problem = "has several splits" if split is None else f"has no split {split!r}"
    raise DataError(f"{name} {problem}: there are {', '.join(splits)}.", hint=f'Set split, for example "{splits[0]}".')


def find_splits(top: Path, files: Sequence[Path], subset: str | None) -> Splits:
    """Which of the `files` belong to which split; empty where nothing tells.

    Files of no split are in none, and a split of which no file is there is an empty one.

    Raises:
        DataError: the card has no such subset, or several and none is named.
    """
    entry, is_alone = _subset_entry(top, subset)
    base = top / str(entry.get("data_dir") or "")
    inside = [file for file in files if file.is_relative_to(base)]
    if entry.get("data_files"):
        splits = _card_splits(base, inside, entry["data_files"])
        rest = [file for file in inside if not any(file in its for its in splits.values())]
        others = _named_splits(base, rest) if is_alone else {}
        return splits | {split: its for split, its in others.items() if split not in {"train", *splits}}
    if names := _saved_splits(base):
        return {name: [file for file in inside if file.is_relative_to(base / name)] for name in names}
    return _named_splits(base, inside) or ({"train": inside} if subset else {})


def _subset_entry(top: Path, subset: str | None) -> tuple[dict[str, Any], bool]:
    """What the card says of the subset or of the default one (nothing without such a card); whether it is alone."""
    card = top / CARD
    try:
        entries = (metadata_load(card) or {}).get("configs") if card.is_file() else None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(
            f"{printable(card)} cannot be read: {' '.join(str(error).split())}.",
            hint="Mend what stands between its lines of ---, or name the files in data.train.",
        ) from error
    entries = [entry for entry in entries or () if isinstance(entry, dict)] if isinstance(entries, list) else []
    names = [str(entry.get("config_name", "default")) for entry in entries]
    if subset is not None and subset not in names:
        there = f"its card names {', '.join(names)}" if names else "it has no card that names any"
        raise DataError(f"{printable(top)} has no subset {subset!r}: {there}.", hint="Leave subset out or name one.")
    meant = [entry for entry, name in zip(entries, names, strict=True) if name == (subset or "default")]
    meant = meant or [entry for entry in entries if entry.get("default")] or entries
    if len(meant) > 1:
        raise DataError(
            f"{printable(top)} has several subsets: {', '.join(names)}.",
            hint=f'Set subset, for example {{ path = "{printable(top)}", subset = "{names[0]}" }}.',
        )
    return (meant[0] if meant else {}), len(entries) == 1


def _card_splits(base: Path, files: Sequence[Path], data_files: Any) -> Splits:
    """`data_files` of a card: a pattern, a list of them (all `train`), or a list of {split, path}."""
    entries = data_files if isinstance(data_files, list) else [data_files]
    splits: Splits = {}
    for entry in entries:
        split, paths = (entry.get("split"), entry.get("path")) if isinstance(entry, dict) else (None, entry)
        for pattern in paths if isinstance(paths, list) else [paths]:
            matches = _glob(base, str(pattern))
            splits.setdefault(str(split or "train"), []).extend(file for file in files if matches(file))
    return {split: list(dict.fromkeys(there)) for split, there in splits.items()}


def _glob(base: Path, pattern: str) -> Callable[[Path], bool]:
    matches = re.compile(glob_translate(pattern.removeprefix("./"))).match
    return lambda file: file.is_relative_to(base) and bool(matches(file.relative_to(base).as_posix()))


def _saved_splits(base: Path) -> list[str]:
    try:
        names = json.loads(read_input(base / SAVED_SPLITS))["splits"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{printable(base / SAVED_SPLITS)} cannot be read: {error}.") from error
    return [str(name) for name in names]


def _named_splits(base: Path, files: Sequence[Path]) -> Splits:
    """By the names of shards (`train-00000-of-00002`), of folders (`train/`), of files (`train.jsonl`).

    Files without such a name are `train` where no file is called that. A folder of documents has splits only if one is
    `train`: there, a single "test.txt" is a topic.
    """
    names = [file.relative_to(base) for file in files]
    has_shards = any((shard := _SHARD.match(name.name)) and _WORD.match(shard[1]) for name in names)
    splits: Splits = {}
    rest: list[Path] = []
    for file, name in zip(files, names, strict=True):
        shard = _SHARD.match(name.name) if has_shards else None
        split = shard[1] if shard else _split_word(name.parent.as_posix()) or _split_word(name.name, alone=True)
        (splits.setdefault(split, []) if split else rest).append(file)
    if rest and ("train" not in splits or len(splits) == 1):
        if "train" not in splits and (not splits or all(kind_of(file) == ".txt" for file in files)):
            return {}
        splits["train"] = [file for file in files if file in {*splits.get("train", ()), *rest}]
    return splits


def _split_word(name: str, *, alone: bool = False) -> str:
    """The split that the last word in the name stands for; `alone`: none where words of several splits are in it."""
    words = [WORDS[word.lower()] for word in _WORD.findall(name)]
    return "" if not words or (alone and len(set(words)) > 1) else words[-1]
