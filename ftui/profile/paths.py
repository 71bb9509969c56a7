"""Paths in a profile: relative ones become absolute, names of models and data on the hub stay what they are."""

import re
from pathlib import Path
from typing import Any

from ftui.profile.origins import Key
from ftui.text import cut, shown

FILES: tuple[Key, ...] = (("data", "train"), ("data", "eval"))
CURRICULUM: Key = ("curriculum",)
REWARDS: Key = ("rewards", "reward_funcs")
SCHEMA: Key = ("rewards", "schema_file")
TEMPLATE: Key = ("data", "chat_template")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DATA_SUFFIXES = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz", ".zst"}
FOLDERS: tuple[Key, ...] = (
    ("model", "name_or_path"), ("adapter", "name_or_path"), ("model", "from_scratch", "tokenizer"),
    ("rewards", "reward_model_name_or_path"),
)  # fmt: skip


def resolve_paths(key: Key, value: Any, folder: Path) -> Any:
    """The value with its paths absolute; a model name that is no folder here stays a hub id.

    Raises:
        ValueError: it can be no path, with the reason.
    """
    if key in FILES:
        each = value if isinstance(value, list) else [value]
        located = [_source(one, folder) for one in each]
        return located if isinstance(value, list) else located[0]
    if key == CURRICULUM and isinstance(value, list):
        return [_with_offs(one) if isinstance(one, dict) else one for one in value]
    if key == TEMPLATE and isinstance(value, str) and value.endswith(".jinja"):
        return str(_place(value, folder))
    if key == SCHEMA and isinstance(value, str):
        return str(_place(value, folder))
    if key == REWARDS:
        return [_function(one, folder) for one in value] if isinstance(value, list) else _function(value, folder)
    if key in FOLDERS and isinstance(value, str):
        place = _place(value, folder)
        if place.exists() or value.startswith((".", "/", "~")):
            return str(place)
    return value


def _source(one: Any, folder: Path) -> Any:
    """A path, or a table with one; what is no file here and looks like a hub id stays one."""
    if isinstance(one, dict):
        table = _with_offs(one)
        return table | ({"path": _source(one["path"], folder)} if isinstance(one.get("path"), str) else {})
    if not isinstance(one, str) or not one:
        return one
    place = _place(one, folder)
    of_the_hub = HUB_ID.fullmatch(one) and place.suffix.lower() not in DATA_SUFFIXES and not place.exists()
    return one if of_the_hub else str(place)


def _function(one: Any, folder: Path) -> Any:
    """FILE.py:NAME with the file's path absolute; the name of a reward of ftui stays one."""
    if not isinstance(one, str) or ".py:" not in one:
        return one
    path, _, name = one.rpartition(":")
    return f"{_place(path, folder)}:{name}"


def _with_offs(table: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == "none" else value for name, value in table.items()}


def _place(value: str, folder: Path) -> Path:
    """The path without links; of one whose name says another kind than its target's (as in the hub's cache) its own."""
    try:
        named = folder / Path(value).expanduser()
        place = named.resolve()
        if named.suffix and named.suffix != place.suffix:
            place = named.parent.resolve() / named.name
        place.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, the home of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{cut(shown(value), 60)} is not a path: {reason}") from error
    return place
