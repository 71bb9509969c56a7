"""A draft looked at: every value with its origin, every fault, for the form to show. No Textual."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from ftui.errors import ProfileError
from ftui.profile.layers import Layer, examine, override_layer, text_layer
from ftui.profile.origins import Key, Origin, Problem
from ftui.profile.schema import Profile
from ftui.profile.serialize import flat
from ftui.profile.toml_edit.toml_errors import BOM

from .form_fields import Field, all_fields, field_at

_LINE = re.compile(r":(\d+): ")
TABLES = tuple(Profile.model_fields)
From = Literal["default", "tier", "file", "--set"]


@dataclass(frozen=True)
class Seen:
    """One text and what it amounts to over a tier and under overrides.

    Attributes:
        given: what the text itself says, key by key; `lines`, where.
        values: what counts as far as it was given, paths as they were written; the others have their default.
        fault: why the text is no TOML at all; then nothing else is known. `fix`: what to write instead.
        absent: files and folders that are not there: the profile is whole, but does not start here.
    """

    text: str
    given: Mapping[Key, Any]
    values: Mapping[Key, Any]
    origins: Mapping[Key, Origin]
    problems: tuple[Problem, ...]
    profile: Profile | None
    file: str
    tier: str = ""
    fault: str = ""
    fix: str = ""
    absent: tuple[Problem, ...] = ()

    @cached_property
    def fault_line(self) -> int | None:
        """Where the text ceases to be TOML."""
        match = _LINE.match(self.fault.removeprefix(self.file))
        return int(match[1]) if match else self.text.count("\n") + 1 if self.fault else None

    @cached_property
    def effective(self) -> Mapping[Key, Any]:
        """Every value of the whole profile, those that follow from others among them; empty where it has faults."""
        return {} if self.profile is None else flat(self.profile)

    @cached_property
    def told(self) -> tuple[Problem, ...]:
        """All that keeps it from starting here."""
        return (*self.problems, *self.absent)

    @cached_property
    def _faults(self) -> Mapping[Key, tuple[Problem, ...]]:
        found: dict[Key, tuple[Problem, ...]] = {}
        for problem in self.told:
            for key in (_table_of(problem.key) or problem.key, *problem.others):
                found[key] = (*found.get(key, ()), problem)
        return found

    def faults(self, key: Key) -> tuple[Problem, ...]:
        """All that is wrong with this key, contradictions that it has a part in among them."""
        return self._faults.get(key, ())

    def own_fault(self, key: Key) -> Problem | None:
        """What makes the value wrong by itself, whatever other keys say."""
        own = (one for one in self.faults(key) if not one.others and one.message != "is missing")
        return next((one for one in own if one not in self.absent), None)

    def value(self, field: Field, key: Key) -> Any:
        """What counts for the key."""
        if self.is_in(self.values, key):
            return self.inside(self.values, key)
        return self.effective.get(key, field.default)

    def origin(self, key: Key) -> Origin:
        for length in range(len(key), 0, -1):
            if (found := self.origins.get(key[:length])) is not None:
                return found if length == len(key) or self.is_given(key) else Origin("default")
        return Origin("default")

    def comes_from(self, key: Key) -> From:
        layer = self.origin(key).layer
        if layer in ("default", "--set"):
            return "default" if layer == "default" else "--set"
        return "file" if layer == self.file else "tier"

    def is_given(self, key: Key) -> bool:
        """Whether the text itself says it."""
        return self.is_in(self.given, key)

    @staticmethod
    def is_in(values: Mapping[Key, Any], key: Key) -> bool:
        return Seen.inside(values, key) is not _ABSENT

    @staticmethod
    def inside(values: Mapping[Key, Any], key: Key) -> Any:
        """The value at a key, which may lead into a list or an inline table; ask `is_in` whether there is one."""
        for length in range(len(key), 0, -1):
            if key[:length] in values:
                return _entered(values[key[:length]], key[length:])
        return _ABSENT

    @cached_property
    def unknown(self) -> tuple[Key, ...]:
        """Keys of the text that no profile has."""
        found = (problem.key for problem in self.problems if field_at(problem.key) is None)
        return tuple(key for key in found if not is_table(key) and self._is_there(key))

    def _is_there(self, key: Key) -> bool:
        return self.is_given(key) or any(known[: len(key)] == key for known in self.given)


class _Absent:
    pass


_ABSENT = _Absent()


def _entered(value: Any, way: Key) -> Any:
    for name in way:
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return _ABSENT
    return value


def look(text: str, path: Path, *, below: Layer | None = None, overrides: Sequence[str] = ()) -> Seen:
    """The text as a profile at `path`. A few milliseconds: it is done at every keystroke."""
    try:
        own = text_layer(text.removeprefix(BOM), path)
    except ProfileError as error:
        return Seen(text, {}, {}, {}, (), None, str(path), fault=error.message, fix=error.hint)
    layers = [*([below] if below else []), own, override_layer(overrides)]
    found = examine(layers, path)
    values = folded({key: _as_written(key, value, own, found.origins) for key, value in found.values.items()})
    tier = below.name if below else ""
    origins = {_table_of(key) or key: origin for key, origin in reversed(list(found.origins.items()))}
    return Seen(
        text, folded(own.values), values, origins, found.problems, found.profile, str(path), tier, absent=found.absent
    )  # fmt: skip


@cache
def _tables() -> tuple[Key, ...]:
    return tuple(field.key for field in all_fields() if field.kind == "table")


def _table_of(key: Key) -> Key | None:
    """The table of names and numbers that the key is in, if any."""
    return next((table for table in _tables() if key[: len(table)] == table), None)


def folded(values: Mapping[Key, Any]) -> dict[Key, Any]:
    """With every table of names and numbers as one value, as the form shows it."""
    found: dict[Key, Any] = {}
    for key, value in values.items():
        table = _table_of(key)
        if table is None or key == table:
            found[key] = value
            continue
        inner = found.setdefault(table, {})
        for name in key[len(table) : -1]:
            inner = inner.setdefault(name, {})
        inner[key[-1]] = value
    return found


def look_at(text: str) -> Mapping[Key, Any]:
    """What a text says, key by key; nothing where it is no TOML."""
    try:
        return folded(text_layer(text.removeprefix(BOM), Path("/")).values)  # the current folder may be gone
    except ProfileError:
        return {}


def _as_written(key: Key, value: Any, own: Layer, origins: Mapping[Key, Origin]) -> Any:
    """Paths stay relative where the text has them so."""
    origin = origins.get(key)
    if origin is None or origin.layer != own.name or key not in own.values:
        return value
    return None if own.values[key] == "none" else own.values[key]


def is_table(key: Key) -> bool:
    """Whether it is one of the tables at the top."""
    return key[0] in TABLES and len(key) == 1
