"""A profile's file as an editor reads and writes it: bytes stay bytes, nobody's change is lost, paths stay right."""

import contextlib
import os
import stat
import tomllib
from pathlib import Path

from ftui.errors import DiskError, ProfileError
from ftui.profile.origins import Key
from ftui.profile.paths import FILES, FOLDERS, TEMPLATE, resolve_paths
from ftui.profile.toml_edit.document import set_key, toml_source
from ftui.profile.toml_reader import BOM, read_text
from ftui.system.files import replace_file


def read_if_exists(path: Path) -> str | None:
    """What is there now; `None` where nothing is.

    Raises:
        ProfileError: something is there that is no text.
    """
    return read_text(path) if path.exists() else None


def save_text(path: Path, text: str) -> None:
    """Put the text there in one move, with the mode that the file has or a new one gets; a link stays a link.

    Raises:
        DiskError: it cannot be written.
    """
    try:
        place = path.resolve()
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask()
        replace_file(place, text.encode(), durable=True)
        place.chmod(mode)
    except (OSError, RuntimeError) as error:
        raise DiskError(f"{path} cannot be written: {error}.") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def relocate_paths(text: str, old: Path, new: Path) -> str:
    """The text of a profile in folder `old`, with paths that mean the same in folder `new`.

    Relative ones stay relative where they lead no further up than to the folder above; others become absolute.

    Raises:
        ProfileError: it is no TOML.
    """
    old, new = old.resolve(), new.resolve()
    if old == new:
        return text
    for key in [*FILES, TEMPLATE, *FOLDERS]:
        text = _relocate(text, key, old, new)
    return text


def _relocate(text: str, key: Key, old: Path, new: Path) -> str:
    given = _value(text, key)
    if not isinstance(given, list):
        relocated = _path(key, given, old, new)
        return text if relocated is None else set_key(text, key, toml_source(relocated))
    for number, one in enumerate(given):
        inside = (*key, str(number), "path") if isinstance(one, dict) else (*key, str(number))
        relocated = _path(key, one.get("path") if isinstance(one, dict) else one, old, new)
        if relocated is not None:
            text = set_key(text, inside, toml_source(relocated))
    return text


def _value(text: str, key: Key) -> object:
    try:
        value: object = tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"This is not TOML, so that its paths cannot be put right: {error}.") from error
    for name in key:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _path(key: Key, given: object, old: Path, new: Path) -> str | None:
    """How the path reads from `new`; `None` where it is none, or stays as it is."""
    if not isinstance(given, str) or not given or given == "none" or given.startswith(("/", "~")):
        return None
    with contextlib.suppress(ValueError):  # no path at all: that is told elsewhere
        place = resolve_paths(key, given, old)
        if place == given or not os.path.isabs(place):
            return None  # the name of a model or a data set on the hub, or of a template
        way = os.path.relpath(place, new)
        near = not way.startswith(os.path.join("..", ".."))
        prefix = "./" if near and "/" not in way and key in FOLDERS else ""
        return prefix + way if near else str(place)
    return None
