"""What happens to a draft when a value is typed, chosen or taken back in the form. No Textual."""

from collections.abc import Mapping
from typing import Any

from ftui.profile.editing import Draft, value_of
from ftui.profile.layers import EXCLUSIVE
from ftui.profile.origins import Key
from ftui.tui.form import Field
from ftui.tui.form_entry import NONE, source_for
from ftui.tui.form_rows import Row
from ftui.tui.form_seen import Seen, look_at


def entered(draft: Draft, row: Row, text: str) -> Draft:
    """With what was typed into the row; nothing typed takes the key out, so that the layer below counts.

    Raises:
        ProfileError: it is no value, or the text cannot take it.
    """
    assert row.field is not None, "only a key can be typed into"
    if not text.strip():
        return cleared(draft, row)
    return with_value(draft, row.field, row.key, source_for(row.field, text))


def with_value(draft: Draft, field: Field, key: Key, source: str) -> Draft:
    """With a value as TOML spells it at the key, and without the keys that cannot stand beside it; one step."""
    changed = draft
    if value_of(source) != NONE:
        for other in excluded(draft, key):
            changed = changed.unset(other)
    changed = _in_source(changed, key, source) if len(key) > len(field.key) else changed.put(key, source)
    return changed.since(draft)


def cleared(draft: Draft, row: Row) -> Draft:
    """Without the key (of a source that is a text, its path: without the source)."""
    given = look_at(draft.text)
    if Seen.is_in(given, row.key):
        return draft.unset(row.key)
    if len(row.key) == 4 and row.key[-1] == "path" and Seen.is_in(given, row.key[:3]):
        return draft.unset(row.key[:3])
    if len(row.key) == 4 and row.key[-1] == "path" and Seen.is_in(given, row.key[:2]):
        return draft.unset(row.key[:2])
    if row.field is not None and row.field.kind == "group":
        return without_group(draft, row.key)
    return draft


def without_group(draft: Draft, key: Key) -> Draft:
    """Without a table and all that is in it."""
    changed = draft
    for inner in [known for known in look_at(draft.text) if known[: len(key)] == key]:
        changed = changed.unset(inner)
    return changed.since(draft)


def excluded(draft: Draft, key: Key) -> list[Key]:
    """Keys of the text that cannot stand beside this one: a run has one end, a model one source."""
    given = look_at(draft.text)
    found = []
    for group in EXCLUSIVE:
        mine = [choice for choice in group if key[: len(choice)] == choice]
        others = [choice for choice in group if choice not in mine] if mine else []
        found += [known for known in given for choice in others if known[: len(choice)] == choice]
    return [known for known in found if given[known] != NONE]


def went(before: Draft, after: Draft, key: Key) -> list[str]:
    """Keys that stand in the text no more after something else was set: those of another value of the key aside."""
    given = look_at(after.text)
    return [".".join(known) for known in look_at(before.text) if known not in given and known[:2] != key[:2]]


def _in_source(draft: Draft, key: Key, source: str) -> Draft:
    """A key of one source: a text becomes a table as soon as anything but its path is said of it."""
    whole, place, name = key[:2], key[:3], key[3]
    given = look_at(draft.text)
    sources = Seen.inside(given, whole) if Seen.is_in(given, whole) else None
    one = sources[int(place[-1])] if isinstance(sources, list) and int(place[-1]) < len(sources) else sources
    if isinstance(sources, list):
        if isinstance(one, dict):
            return draft.put(key, source)
        if name == "path":
            return draft.put(place, source)
        return draft.set(place, _table(one, name, source))
    if name == "path":
        return draft.put(whole, source)
    return draft.set(whole, [_table(sources, name, source)])


def _table(path: Any, name: str, source: str) -> dict[str, Any]:
    return {**({"path": path} if isinstance(path, str) else {}), name: value_of(source)}


def with_source(draft: Draft, key: Key, path: str) -> Draft:
    """With one more source of rows at `data.train` or `data.eval`."""
    given = look_at(draft.text)
    sources = Seen.inside(given, key) if Seen.is_in(given, key) else None
    if isinstance(sources, list):
        return draft.set(
            (*key, str(len(sources))), {"path": path} if all(isinstance(s, dict) for s in sources) else path
        )
    if isinstance(sources, str) and sources != NONE:
        return draft.set(key, [sources, path])
    changed = draft
    for other in excluded(draft, key):
        changed = changed.unset(other)
    return changed.set(key, path).since(draft)


def renamed(draft: Draft, key: Key, meant: Key) -> Draft:
    """An unknown key's value (or all that an unknown table holds) under the name that was meant; one step."""
    given = look_at(draft.text)
    inside = {(*meant, *known[len(key) :]): value for known, value in given.items() if known[: len(key)] == key}
    values = {meant: Seen.inside(given, key)} if Seen.is_in(given, key) else inside
    changed = draft.unset(key)
    for name, value in values.items():
        changed = changed.set(name, value)
    return changed.since(draft)


def with_all(draft: Draft, values: Mapping[Key, Any]) -> Draft:
    """With several values at once, as a suggestion has them; one step."""
    changed = draft
    for key, value in values.items():
        for known in [known for known in look_at(changed.text) if known[: len(key)] == key and known != key]:
            changed = changed.unset(known)
        for other in excluded(changed, key) if value != NONE else ():
            changed = changed.unset(other)
        changed = changed.set(key, value)
    return changed.since(draft)
