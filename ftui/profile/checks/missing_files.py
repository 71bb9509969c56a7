"""Files and folders that a profile names and that are not there, or are no files: all told before an engine starts."""

import difflib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ftui.profile.origins import Key, ProfileFault, ValueOrigin, nearest_origin
from ftui.profile.paths import FILES, FOLDERS, HUB_ID, SCHEMA, TEMPLATE
from ftui.system.input_files import name_special
from ftui.text import cut, shown

TABLE = "dataset_info.json"  # of LLaMA-Factory
LONGEST_PATH = 200  # columns of a path that are told


def find_missing_files(
    values: Mapping[Key, Any], origins: Mapping[Key, ValueOrigin], faulty: Collection[Key]
) -> Iterator[ProfileFault]:
    """One problem for each; keys that are `faulty` are told elsewhere.

    `values`: with paths made absolute; a name that is none of a file here stands for something on the hub.
    """
    for key, given in values.items():
        for place, path in _paths(key, given):
            if any(place[: len(wrong)] == wrong for wrong in faulty):
                continue
            reason, fix = _reason(key, path)
            if reason:
                yield ProfileFault(place, nearest_origin(place, origins), reason, fix)


def _paths(key: Key, given: Any) -> Iterator[tuple[Key, str]]:
    """Every path or name of a hub that the value holds, with its key."""
    if key in FILES:
        for number, one in enumerate(given if isinstance(given, list) else [given]):
            inside = (*key, str(number)) if isinstance(given, list) else key
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield (*inside, "path"), one["path"]
            elif isinstance(one, str):
                yield inside, one
    elif isinstance(given, str) and (key in (*FOLDERS, SCHEMA) or (key == TEMPLATE and given.endswith(".jinja"))):
        yield key, given


def _reason(key: Key, path: str) -> tuple[str, str]:
    """What is missing and what to do about it; empty where nothing is."""
    is_file = key in (TEMPLATE, SCHEMA) or path.lower().endswith(".gguf")
    if not os.path.isabs(path):
        if key not in FOLDERS or (not is_file and (HUB_ID.fullmatch(path) or "/" not in path)):
            return "", ""  # a name on the hub
        what = "file" if is_file else "folder"
        return (
            f"there is no {what} {_shorten(path)} here, and it is not a valid name on the hub",
            "Names there are owner/name.",
        )
    if special := name_special(Path(path)):
        return f"{_shorten(path)} is {special}, not a regular file", "Copy what it gives into a file, and name that."
    if os.path.exists(path):
        return "", ""
    what = "file or folder" if key in FILES else "file" if is_file else "folder"
    place = Path(path)
    return f"there is no {what} {_shorten(place.name)} in {_shorten(str(place.parent))}", _near(
        place, is_rows=key in FILES
    )


def _near(path: Path, *, is_rows: bool) -> str:
    """What may have been meant: the nearest name beside it, or which folder above it is missing too."""
    if entry := _entry_meant(path):
        return entry
    if not path.parent.is_dir():
        return f"There is no folder {_shorten(str(path.parent))} either."
    try:
        names = os.listdir(path.parent)
    except OSError:  # a folder that nobody may look into
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
    if close:
        return f"Did you mean {_shorten(close[0])}?"
    entry = f'; an entry of a {TABLE} is {{ path = "{TABLE}", subset = "{_shorten(path.name)}" }}'
    return f"Paths are relative to the profile's folder{entry if is_rows and not path.suffix else ''}."


def _entry_meant(path: Path) -> str:
    """How an entry of a dataset_info.json is written, where the name is one, alone or behind the file and a colon."""
    before, colon, name = str(path).rpartition(":")
    table = Path(before) if colon else path.parent / TABLE
    if table.name != TABLE or not table.is_file():
        return ""
    name = name if colon else path.name
    if not colon:
        try:
            known = json.loads(table.read_text(encoding="utf-8-sig"))
        except (
            OSError,
            ValueError,
            RecursionError,
        ):  # then it explains nothing; the engine tells what is wrong with it
            return ""
        if not isinstance(known, dict) or name not in known:
            return ""
    return (
        f'Write train = {{ path = "{_shorten(str(table))}", subset = "{_shorten(name)}" }}, for an entry of that file.'
    )


def _shorten(path: str) -> str:
    return cut(shown(path), LONGEST_PATH)
