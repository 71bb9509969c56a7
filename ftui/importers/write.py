"""The imported values as a profile with comments."""

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomlkit

from ftui.importers.draft import Draft
from ftui.importers.outcome import Dropped, Key
from ftui.profile.schema import Profile
from ftui.text import cut, escaped, shown

VALUE_WIDTH = 60
WIDTH = 118


def written(draft: Draft, missing: Iterable[str], source: Path) -> str:
    """TOML: the sections in their order, each value with where it is from, then what could not be carried."""
    lines = [f"# Made by `ftui import` from {shown(source.name)} ({draft.tool})."]
    if draft.refused:
        lines.append(f"# Not to be run: {shown(draft.refused)}.")
    for section in Profile.model_fields:
        own = {key: value for key, value in draft.values.items() if key[0] == section}
        needed = [one for one in missing if re.match(rf"{section}[.:]", one)]
        if own or needed:
            lines += ["", f"[{section}]"]
            lines += [f"# MISSING: {shown(one)}" for one in needed]
            lines += _section(draft, section, own)
    for line in lost(draft.dropped):
        lines += textwrap.wrap(line, WIDTH, initial_indent="# ", subsequent_indent="#     ") or [""]
    return "\n".join(lines) + "\n"


def lost(dropped: Iterable[Dropped]) -> list[str]:
    """What is not carried over, for people: what matters with its value, the rest by its reason."""
    mattering: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for one in dropped:
        name = shown(one.foreign)
        if one.matters:
            mattering.setdefault(one.reason, []).append(f"{name} = {cut(shown(_plain(one.value)), VALUE_WIDTH)}")
        else:
            others.setdefault(one.reason, []).append(name)
    lines = []
    for title, groups in (("Not carried over, and it matters:", mattering), ("Not needed here:", others)):
        told = [f"  {', '.join(names)}: {shown(reason)}" for reason, names in groups.items()]
        lines += ["", title, *told] if told else []
    return lines


def _plain(value: Any) -> str:
    """A value as YAML has it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _section(draft: Draft, section: str, own: dict[Key, Any]) -> list[str]:
    order = list(Profile.model_fields[section].annotation.model_fields)  # type: ignore[union-attr]
    tables: dict[str, dict[str, Any]] = {}
    for key, value in own.items():
        if len(key) > 2:
            tables.setdefault(key[1], {})[key[2]] = value
    flat = {key[1]: value for key, value in own.items() if len(key) == 2}
    flat |= {name: (flat.get(name) or {}) | inside for name, inside in tables.items()}
    lines = []
    for name in sorted(flat, key=lambda name: order.index(name) if name in order else len(order)):
        notes = [note for key, note in draft.notes.items() if key[:2] == (section, name)]
        comment = f"  # {cut(shown('; '.join(notes)), 2 * VALUE_WIDTH)}" if notes else ""
        lines.append(f"{name} = {_value(flat[name])}{comment}")
    return lines


def _value(value: Any) -> str:
    return escaped(str(tomlkit.item(_inline(value)).as_string()))


def _inline(value: Any) -> Any:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for name, inside in value.items():
            table[name] = _inline(inside)
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        for one in value:
            array.append(_inline(one))
        return array.multiline(len(value) > 1 and any(isinstance(one, dict) for one in value))
    return value
