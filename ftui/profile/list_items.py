"""One key of one table of a list, as `--set curriculum.0.fraction=0.5` and `--set data.train.1.weight=2` name it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftui.profile.origins import Key, ProfileFault, ValueOrigin
from ftui.profile.paths import FILES, resolve_paths


def is_in_list(values: Mapping[Key, Any], key: Key) -> bool:
    """Whether the key is one of a table of a list that was given."""
    return _above(values, key) is not None


def set_in_list(values: dict[Key, Any], key: Key, value: Any, folder: Path, origin: ValueOrigin) -> list[ProfileFault]:
    """Sets it, and tells what is wrong with it. Tables are counted from 0; `folder` as of `located`."""
    above = _above(values, key)
    assert above is not None, f"{key} is in a list"
    tables, number, names = _tables(values, above), int(key[len(above)]), key[len(above) + 1 :]
    if number >= len(tables):
        there = "there is only 0" if len(tables) == 1 else f"they are numbered 0 to {len(tables) - 1}"
        return [ProfileFault(key, origin, f"there is no {'.'.join(above)}.{number}: {there}")]
    for name in reversed(names[1:]):
        value = {name: value}
    try:
        new = resolve_paths(above, [{names[0]: value}], folder)[0]
    except ValueError as error:
        return [ProfileFault(key, origin, str(error), "Write the path of a file or a folder.")]
    values[above] = [*tables[:number], _laid(tables[number], new), *tables[number + 1 :]]
    return []


def keys_inside(key: Key, value: Any) -> list[Key]:
    """Keys of the tables of a list (`[[data.train]]`): `("data", "train", "0", "weight")`."""
    each = value if isinstance(value, list) else []
    return [(*key, str(number), name) for number, one in enumerate(each) if isinstance(one, dict) for name in one]


def in_list(above: Key, rest: Key) -> str:
    """How a key is named that was given as one of the whole list."""
    return ".".join((*above, *rest, "KEY") if rest[0].isdecimal() else (*above, "0", *rest))


def _above(values: Mapping[Key, Any], key: Key) -> Key | None:
    """The key of the list."""
    for length in range(1, len(key) - 1):
        tables = _tables(values, key[:length])
        if tables and key[length].isdecimal() and all(isinstance(table, dict) for table in tables):
            return key[:length]
    return None


def _tables(values: Mapping[Key, Any], above: Key) -> list[Any]:
    """The tables of a list, sources as tables too however they are written; nothing where there is no such list."""
    given = values.get(above)
    if above in FILES:
        each = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        return [{"path": one} if isinstance(one, str) else one for one in each]
    return given if isinstance(given, list) else []


def _laid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The keys of both, table within table; of keys that both have, those above."""
    both = {name for name in below.keys() & above if isinstance(below[name], dict) and isinstance(above[name], dict)}
    return below | above | {name: _laid(below[name], above[name]) for name in both}
