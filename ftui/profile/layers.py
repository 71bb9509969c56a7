"""Layers of a profile: defaults < tier < profile < --set; the later wins key by key; every value knows its origin."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ftui.errors import ProfileError, UsageError
from ftui.profile.complaints import complaint
from ftui.profile.lines import line_of
from ftui.profile.sections import Profile
from ftui.shown import cut, shown

Key = tuple[str, ...]

EXCLUSIVE: tuple[tuple[Key, ...], ...] = (
    (("train", "max_steps"), ("train", "num_train_epochs")),
    (("data", "eval"), ("data", "eval_fraction"), ("data", "eval_num_rows")),
    (("model", "name_or_path"), ("model", "from_scratch")),
)
FILES: tuple[Key, ...] = (("data", "train"), ("data", "eval"))
TEMPLATE: Key = ("data", "chat_template")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DATA_SUFFIXES = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".gz", ".zst"}
FOLDERS: tuple[Key, ...] = (
    ("model", "name_or_path"), ("adapter", "name_or_path"), ("model", "from_scratch", "tokenizer"),
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: `default`, a tier, a file (with the line), or `--set`."""

    layer: str
    line: int | None = None

    def __str__(self) -> str:
        return self.layer if self.line is None else f"{self.layer}:{self.line}"


@dataclass(frozen=True)
class Layer:
    """One source of values. `folder` is what its relative paths are relative to; `text` is for finding lines."""

    name: str
    values: Mapping[Key, Any]
    folder: Path
    text: str = ""

    def origin(self, key: Key) -> Origin:
        return Origin(self.name, line_of(self.text, key) if self.text else None)


@dataclass(frozen=True)
class Resolved:
    """A whole valid profile and the origin of every value that is not a default."""

    profile: Profile
    origins: Mapping[Key, Origin]
    path: Path

    def origin(self, key: Key) -> Origin:
        return self.origins.get(key, Origin("default"))


def resolve(path: Path, *, overrides: Iterable[str] = (), below: Iterable[Layer] = ()) -> Resolved:
    """Read the profile at `path` over the layers `below` it and under the `--set` overrides.

    Raises:
        ProfileError: the file cannot be read, is not TOML, or a key or value is wrong (named with its line).
        UsageError: an override is not of the form section.key=value.
    """
    layers = [*below, file_layer(path), override_layer(overrides)]
    values, origins = _merge(layers)
    try:
        profile = Profile.model_validate_json(json.dumps(_nest(values), default=str))
    except ValidationError as error:
        raise complaint(error, path, origins) from error
    return Resolved(profile, origins, path)


def file_layer(path: Path) -> Layer:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        table = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ProfileError(f"There is no profile at {path}.", hint="`ftui profiles` lists the shipped ones.") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise ProfileError(f"{path} cannot be read as a profile: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path} is not TOML: {error}.") from error
    return Layer(str(path), dict(_flatten(table)), path.absolute().parent, text)


def override_layer(overrides: Iterable[str]) -> Layer:
    values: dict[Key, Any] = {}
    for override in overrides:
        dotted, equals, raw = override.partition("=")
        key = tuple(dotted.strip().split("."))
        if not equals or len(key) < 2 or not all(key):
            raise UsageError(f"--set {override}: write section.key=value.", hint="--set train.max_steps=100")
        values[key] = _parse_value(raw.strip())
    return Layer("--set", values, Path.cwd())


def _parse_value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw  # a bare word is a string: --set run.name=mine


def _flatten(table: Mapping[str, Any], above: Key = ()) -> Iterable[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, (*above, name))
        else:
            yield (*above, name), value


def _nest(values: Mapping[Key, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key, value in values.items():
        table = root
        for name in key[:-1]:
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ProfileError(f"{'.'.join(key)}: {name} is both a value and a table.")
            table = inner
        table[key[-1]] = value
    return root


def _merge(layers: Iterable[Layer]) -> tuple[dict[Key, Any], dict[Key, Origin]]:
    values: dict[Key, Any] = {}
    origins: dict[Key, Origin] = {}
    for layer in layers:
        for key in _displaced(layer.values, values):
            del values[key]
            _forget(origins, key)
        for key, value in layer.values.items():
            values[key] = _located(key, None if value == "none" else value, layer.folder)
            _forget(origins, key)
            origins[key] = layer.origin(key)
            origins |= {inside: layer.origin(inside) for inside in _inside(key, value)}
    return values, origins


def _forget(origins: dict[Key, Origin], key: Key) -> None:
    for known in [known for known in origins if known[: len(key)] == key]:
        del origins[known]


def _inside(key: Key, value: Any) -> list[Key]:
    """Keys of the tables of a list (`[[data.train]]`): `("data", "train", "0", "weight")`."""
    each = value if isinstance(value, list) else []
    return [(*key, str(number), name) for number, one in enumerate(each) if isinstance(one, dict) for name in one]


def _displaced(new: Mapping[Key, Any], old: Mapping[Key, Any]) -> list[Key]:
    """Keys below that give way because the layer above sets another of their exclusive group."""

    def under(key: Key, choice: Key) -> bool:
        return key[: len(choice)] == choice

    gone = []
    for group in EXCLUSIVE:
        chosen = {c for c in group for key, value in new.items() if under(key, c) and value != "none"}
        if chosen:
            gone += [k for k in old for c in group if under(k, c) and c not in chosen]
    return gone


def _located(key: Key, value: Any, folder: Path) -> Any:
    """Relative paths become absolute; a model name that is no folder here stays a hub id."""
    if key in FILES:
        each = value if isinstance(value, list) else [value]
        found = [_source(key, one, folder) for one in each]
        return found if isinstance(value, list) else found[0]
    if key == TEMPLATE and isinstance(value, str) and value.endswith(".jinja"):
        return str(_place(key, value, folder))
    if key in FOLDERS and isinstance(value, str):
        place = _place(key, value, folder)
        if place.exists() or value.startswith((".", "/", "~")):
            return str(place)
    return value


def _source(key: Key, one: Any, folder: Path) -> Any:
    """A path, or a table with one; what is no file here and looks like a hub id stays one."""
    if isinstance(one, dict):
        table = {name: None if value == "none" else value for name, value in one.items()}
        return table | ({"path": _source(key, one["path"], folder)} if isinstance(one.get("path"), str) else {})
    if not isinstance(one, str):
        return one
    place = _place(key, one, folder)
    of_the_hub = HUB_ID.fullmatch(one) and place.suffix.lower() not in DATA_SUFFIXES and not place.exists()
    return one if of_the_hub else str(place)


def _place(key: Key, value: str, folder: Path) -> Path:
    try:
        place = (folder / Path(value).expanduser()).resolve()
        place.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, the home of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProfileError(f"{'.'.join(key)}: {cut(shown(value), 60)} is no path: {reason}.") from error
    return place
