"""What happens to a draft when a value is typed, chosen or taken back in the form. No Textual."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ftui.errors import ProfileError
from ftui.profile.layers import EXCLUSIVE
from ftui.profile.origins import Key
from ftui.profile.paths import CURRICULUM
from ftui.profile.toml_edit.document import Draft, source_of, value_of
from ftui.profile.toml_edit.placement import instead_of

from .form_fields import Field
from .form_rows import Row
from .snapshot import Seen, look_at
from .text_values import NONE, source_for


def entered(draft: Draft, row: Row, text: str) -> Draft:
    """With what was typed into the row; nothing typed takes the key out, so that the layer below counts.

    Raises:
        ProfileError: it is no value, or the text cannot take it.
    """
    assert row.field is not None, "only a key can be typed into"
    if not text.strip():
        return cleared(draft, row)
    if is_list(draft, row) and not text.lstrip().startswith("["):
        raise ProfileError(
            f"{row.name} is a list of sources: one text cannot stand for it.", hint="Change its sources."
        )
    return with_value(draft, row.field, row.key, source_for(row.field, text))


def is_list(draft: Draft, row: Row) -> bool:
    """Whether the row shows a list of sources in short: that is no value to be typed or chosen again."""
    is_whole = row.field is not None and row.field.kind == "sources" and row.key == row.field.key
    return is_whole and isinstance(Seen.inside(look_at(draft.text), row.key), list)


def with_value(draft: Draft, field: Field, key: Key, source: str) -> Draft:
    """With a value as TOML spells it at the key, and without the keys that cannot stand beside it; one step."""
    if len(key) == len(field.key):
        return _put(draft, key, source).since(draft)
    changed = draft
    if value_of(source) != NONE:
        for other in excluded(draft, key):
            changed = changed.unset(other)
    return _in_source(changed, key, source).since(draft)


def _put(draft: Draft, key: Key, source: str) -> Draft:
    """With the value, and in the place of one that cannot stand beside it where its line can be had."""
    others = excluded(draft, key) if value_of(source) != NONE else []
    changed = draft
    for other in others:
        changed = changed.unset(other)
    changed = changed.put(key, source)
    for other in others:
        rest = draft
        for further in others:
            rest = rest if further == other else rest.unset(further)
        is_dos = rest.text.count("\n") == rest.text.count("\r\n")
        with suppress(KeyError, ValueError):  # it has no line of its own: the end of the table will do
            text = instead_of(rest.text.replace("\r\n", "\n") if is_dos else rest.text, other, key, source)
            text = text.replace("\n", "\r\n") if is_dos else text
            if look_at(text) == look_at(changed.text):
                return draft.to(text)
    return changed


def cleared(draft: Draft, row: Row) -> Draft:
    """Without the key (of a source that is a text, its path: without the source)."""
    given = look_at(draft.text)
    if Seen.is_in(given, row.key):
        return draft.unset(row.key)
    if len(row.key) == 4 and row.key[-1] == "path" and Seen.is_in(given, row.key[:3]):
        return draft.unset(row.key[:3])
    if len(row.key) == 4 and row.key[-1] == "path" and Seen.is_in(given, row.key[:2]):
        return draft.unset(row.key[:2])
    if len(row.key) == 3 and Seen.is_in(given, row.key[:2]) and Seen.inside(given, row.key[:2]) == {}:
        return draft.unset(row.key[:2])  # a stage that says nothing
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
    """A key of one source: a text becomes a table as soon as anything but its path is said of it.

    Or a key of one table of a list, which is made with it where it is not there yet.
    """
    whole, place, name = key[:-2], key[:-1], key[-1]
    given = look_at(draft.text)
    sources = Seen.inside(given, whole) if Seen.is_in(given, whole) else None
    one = sources[int(place[-1])] if isinstance(sources, list) and int(place[-1]) < len(sources) else sources
    if whole == CURRICULUM:
        if isinstance(one, dict):
            return draft.put(key, source)
        table = {name: value_of(source)}
        return draft.set(place, table) if isinstance(sources, list) else draft.set(whole, [table])
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
    return _put(draft, key, source_of(path)).since(draft)


def with_stage(draft: Draft) -> tuple[Draft, int]:
    """With one more stage of the curriculum, and its number."""
    given, stage = look_at(draft.text), {"sort_by": "length", "num_train_epochs": 1}
    stages = given.get(CURRICULUM)
    if not isinstance(stages, list) or not stages:
        return draft.set(CURRICULUM, [stage]), 0
    return draft.set((*CURRICULUM, str(len(stages))), stage), len(stages)


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
        changed = _put(changed, key, source_of(value))
    return changed.since(draft)
