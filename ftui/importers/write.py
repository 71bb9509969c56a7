"""The imported values as a profile with comments."""

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ftui.importers.draft import Dropped, ProfileDraft
from ftui.profile.origins import Key
from ftui.profile.schema import Profile
from ftui.profile.toml_edit.document import toml_source
from ftui.text import cut, escape_document, shown

VALUE_WIDTH = 60
WIDTH = 118


def write_profile(draft: ProfileDraft, missing: Iterable[str], source: Path) -> str:
    """TOML: the sections in their order, each value with where it is from, then what could not be carried."""
    lines = [f"# Made by `ftui import` from {shown(source.name)} ({draft.tool})."]
    if draft.refused:
        lines.append(f"# Not to be run: {shown(draft.refused)}.")
    for section in Profile.model_fields:
        own = {key: value for key, value in draft.values.items() if key[0] == section}
        needed = [line for line in missing if re.match(rf"{section}[.:]", line)]
        if own or needed:
            lines += ["", f"[{section}]"]
            lines += [f"# MISSING: {shown(line)}" for line in needed]
            lines += _section(draft, section, own)
    for line in list_dropped(draft.dropped):
        lines += textwrap.wrap(line, WIDTH, initial_indent="# ", subsequent_indent="#     ") or [""]
    return "\n".join(lines) + "\n"


def list_dropped(dropped: Iterable[Dropped]) -> list[str]:
    """What is not carried over, for people: what matters with its value, the rest by its reason."""
    mattering: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for item in dropped:
        name = shown(item.foreign)
        if item.matters:
            mattering.setdefault(item.reason, []).append(f"{name} = {cut(shown(_plain(item.value)), VALUE_WIDTH)}")
        else:
            others.setdefault(item.reason, []).append(name)
    lines = []
    for title, groups in (("Not carried over, and it matters:", mattering), ("Not needed here:", others)):
        entries = [f"  {', '.join(names)}: {shown(reason)}" for reason, names in groups.items()]
        lines += ["", title, *entries] if entries else []
    return lines


def _plain(value: Any) -> str:
    """A value as YAML has it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _section(draft: ProfileDraft, section: str, own: dict[Key, Any]) -> list[str]:
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
    """TOML; several tables stand in lines of their own."""
    if isinstance(value, list) and len(value) > 1 and any(isinstance(element, dict) for element in value):
        return "[\n" + "".join(f"    {_value(element)},\n" for element in value) + "]"
    return escape_document(toml_source(value))
