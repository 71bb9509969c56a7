"""A profile's text read at one moment: every value with its origin, every fault, for the form to show. No Textual."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from ftui.errors import ProfileError
from ftui.profile.checks.warnings import find_warnings
from ftui.profile.layers import ProfileLayer, examine, text_layer
from ftui.profile.origins import Key, ProfileFault, ValueOrigin
from ftui.profile.schema import Profile
from ftui.profile.serialize import flat_values
from ftui.profile.toml_reader import BOM

from .form_fields import Field, all_fields, field_at

_LINE = re.compile(r":(\d+): ")
_ABSENT = object()
Source = Literal["default", "tier", "file"]


def value_at(values: Mapping[Key, Any], key: Key, default: Any = None) -> Any:
    """The value at a key, which may lead into a list or an inline table."""
    length = next((n for n in range(len(key), 0, -1) if key[:n] in values), 0)
    if not length:
        return default
    value = values[key[:length]]
    for name in key[length:]:
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return default
    return value


def has_value(values: Mapping[Key, Any], key: Key) -> bool:
    """Whether there is a value at the key, `None` included."""
    return value_at(values, key, _ABSENT) is not _ABSENT


def values_under(values: Mapping[Key, Any], key: Key) -> dict[Key, Any]:
    """The values of a key and of all keys below it."""
    return {name: value for name, value in values.items() if name[: len(key)] == key}


@dataclass(frozen=True)
class Snapshot:
    """One text and what it amounts to over a tier.

    Attributes:
        file_values: what the text itself says, key by key.
        values: what counts as far as the text or the tier says it, paths as they were written; the others have their
            default.
        syntax_error: why the text is no TOML at all; then nothing else is known. `syntax_fix`: what to write instead.
        missing_files: files and folders that are not there: the profile is valid, but does not start here.
    """

    text: str
    file: str
    file_values: Mapping[Key, Any]
    values: Mapping[Key, Any]
    origins: Mapping[Key, ValueOrigin]
    problems: tuple[ProfileFault, ...] = ()
    missing_files: tuple[ProfileFault, ...] = ()
    profile: Profile | None = None
    tier: str = ""
    syntax_error: str = ""
    syntax_fix: str = ""

    @cached_property
    def syntax_error_line(self) -> int | None:
        """Where the text ceases to be TOML."""
        match = _LINE.match(self.syntax_error.removeprefix(self.file))
        return int(match[1]) if match else self.text.count("\n") + 1 if self.syntax_error else None

    @cached_property
    def effective(self) -> Mapping[Key, Any]:
        """Every value of the valid profile, also those that follow from others; empty where it has faults."""
        return {} if self.profile is None else flat_values(self.profile)

    @cached_property
    def faults(self) -> tuple[ProfileFault, ...]:
        """All that keeps it from starting here."""
        return (*self.problems, *self.missing_files)

    @cached_property
    def warnings(self) -> tuple[ProfileFault, ...]:
        """What its numbers say and hardly anybody means; nothing while the profile has errors."""
        return () if self.profile is None else tuple(find_warnings(self.profile))

    def warnings_of(self, key: Key) -> tuple[ProfileFault, ...]:
        """The warnings about this key."""
        return tuple(warning for warning in self.warnings if warning.key == key)

    @cached_property
    def _faults_by_key(self) -> Mapping[Key, tuple[ProfileFault, ...]]:
        by_key: dict[Key, tuple[ProfileFault, ...]] = {}
        for problem in self.faults:
            for key in (_table_of(problem.key) or problem.key, *problem.others):
                by_key[key] = (*by_key.get(key, ()), problem)
        return by_key

    def faults_of(self, key: Key) -> tuple[ProfileFault, ...]:
        """All that is wrong with this key, also the contradictions that it has a part in."""
        return self._faults_by_key.get(key, ())

    def own_fault(self, key: Key) -> ProfileFault | None:
        """What makes the value wrong by itself, whatever other keys say."""
        own = (fault for fault in self.faults_of(key) if not fault.others and fault.message != "is missing")
        return next((fault for fault in own if fault not in self.missing_files), None)

    def value(self, field: Field, key: Key) -> Any:
        """What counts for the key."""
        return value_at(self.values, key, self.effective.get(key, field.default))

    def origin(self, key: Key) -> ValueOrigin:
        """Where the value of the key, or of the list or table it is in, comes from."""
        for length in range(len(key), 0, -1):
            if (origin := self.origins.get(key[:length])) is not None:
                return origin if length == len(key) or self.is_in_file(key) else ValueOrigin("default")
        return ValueOrigin("default")

    def source(self, key: Key) -> Source:
        """The kind of layer that the value of the key comes from."""
        layer = self.origin(key).layer
        return "default" if layer == "default" else "file" if layer == self.file else "tier"

    def is_in_file(self, key: Key) -> bool:
        """Whether the text itself gives the key a value."""
        return has_value(self.file_values, key)

    @cached_property
    def unknown(self) -> tuple[Key, ...]:
        """Keys of the text that no profile has."""
        keys = (problem.key for problem in self.problems if field_at(problem.key) is None)
        return tuple(key for key in keys if not _is_section(key) and self._is_written(key))

    def _is_written(self, key: Key) -> bool:
        return self.is_in_file(key) or bool(values_under(self.file_values, key))


def take_snapshot(text: str, path: Path, *, tier: ProfileLayer | None = None) -> Snapshot:
    """Reads the text as a profile at `path` over the tier. Takes a few milliseconds: it is done at every keystroke."""
    try:
        own = text_layer(text.removeprefix(BOM), path)
    except ProfileError as error:
        return Snapshot(text, str(path), {}, {}, {}, syntax_error=error.message, syntax_fix=error.hint)
    examined = examine([*([tier] if tier else []), own], path)
    written = {key: _as_written(key, value, own, examined.origins) for key, value in examined.values.items()}
    return Snapshot(
        text,
        str(path),
        file_values=_fold_tables(own.values),
        values=_fold_tables(written),
        origins={_table_of(key) or key: origin for key, origin in reversed(list(examined.origins.items()))},
        problems=examined.problems,
        missing_files=examined.missing_files,
        profile=examined.profile,
        tier=tier.name if tier else "",
    )


def read_keys(text: str) -> Mapping[Key, Any]:
    """What a text says, key by key; nothing where it is no TOML."""
    try:
        return _fold_tables(text_layer(text.removeprefix(BOM), Path("/")).values)  # the current folder may be gone
    except ProfileError:
        return {}


@cache
def _tables() -> tuple[Key, ...]:
    return tuple(field.key for field in all_fields() if field.kind == "table")


def _table_of(key: Key) -> Key | None:
    """The table of names and numbers that the key is in, if any."""
    return next((table for table in _tables() if key[: len(table)] == table), None)


def _fold_tables(values: Mapping[Key, Any]) -> dict[Key, Any]:
    """The values with every table of names and numbers as one value, as the form shows it."""
    folded: dict[Key, Any] = {}
    for key, value in values.items():
        table = _table_of(key)
        if table is None or key == table:
            folded[key] = value
            continue
        inner = folded.setdefault(table, {})
        for name in key[len(table) : -1]:
            inner = inner.setdefault(name, {})
        inner[key[-1]] = value
    return folded


def _as_written(key: Key, value: Any, own: ProfileLayer, origins: Mapping[Key, ValueOrigin]) -> Any:
    """Paths stay relative where the text has them so."""
    origin = origins.get(key)
    if origin is None or origin.layer != own.name or key not in own.values:
        return value
    return None if own.values[key] == "none" else own.values[key]


def _is_section(key: Key) -> bool:
    """Whether it is one of the tables at the top."""
    return len(key) == 1 and key[0] in Profile.model_fields
