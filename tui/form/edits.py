"""What happens to a draft when a value is typed, chosen or unset in the form. No Textual."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ftui.errors import ProfileError
from ftui.profile.layers import EXCLUSIVE
from ftui.profile.origins import Key
from ftui.profile.paths import CURRICULUM
from ftui.profile.toml_edit.document import ProfileDocument, parse_toml_value, toml_source
from ftui.profile.toml_edit.statements import swap_key

from .form_fields import Field
from .form_rows import FormRow
from .snapshot import has_value, read_keys, value_at, values_under
from .text_values import NONE, parse_value

NEW_STAGE = {"sort_by": "length", "num_train_epochs": 1}


def enter_text(draft: ProfileDocument, row: FormRow, text: str) -> ProfileDocument:
    """The draft with what was typed into the row; no text unsets the key.

    Raises:
        ProfileError: it is no value, or the text cannot take it.
    """
    assert row.field is not None, "only a key can be typed into"
    if not text.strip():
        return unset_row(draft, row)
    if is_source_list(draft, row) and not text.lstrip().startswith("["):
        raise ProfileError(
            f"{row.name} is a list of sources: one text cannot stand for it.", hint="Change its sources."
        )
    return with_value(draft, row.field, row.key, parse_value(row.field, text))


def is_source_list(draft: ProfileDocument, row: FormRow) -> bool:
    """Whether the row shows a list of sources in short, which is no value to be typed or chosen again."""
    is_whole = row.field is not None and row.field.kind == "sources" and row.key == row.field.key
    return is_whole and isinstance(value_at(read_keys(draft.text), row.key), list)


def with_value(draft: ProfileDocument, field: Field, key: Key, source: str) -> ProfileDocument:
    """The draft with a value (as TOML) at the key, and without the keys that exclude it; one step."""
    if len(key) == len(field.key):
        return _put(draft, key, source).since(draft)
    excluded = _excluded_keys(draft, key) if parse_toml_value(source) != NONE else []
    return _put_into_source(_without(draft, excluded), key, source).since(draft)


def with_values(draft: ProfileDocument, values: Mapping[Key, Any]) -> ProfileDocument:
    """The draft with several values at once, as a suggestion has them; one step."""
    changed = draft
    for key, value in values.items():
        inside = [inner for inner in values_under(read_keys(changed.text), key) if inner != key]
        changed = _put(_without(changed, inside), key, toml_source(value))
    return changed.since(draft)


def with_source(draft: ProfileDocument, key: Key, path: str) -> ProfileDocument:
    """The draft with one more source of rows at `data.train` or `data.eval`; one step."""
    sources = value_at(read_keys(draft.text), key)
    if isinstance(sources, list):
        are_tables = all(isinstance(source, dict) for source in sources)
        return draft.set((*key, str(len(sources))), {"path": path} if are_tables else path)
    if isinstance(sources, str) and sources != NONE:
        return draft.set(key, [sources, path])
    return _put(draft, key, toml_source(path)).since(draft)


def with_stage(draft: ProfileDocument) -> ProfileDocument:
    """The draft with one more stage of the curriculum; one step."""
    stages = read_keys(draft.text).get(CURRICULUM)
    if not isinstance(stages, list) or not stages:
        return draft.set(CURRICULUM, [NEW_STAGE])
    return draft.set((*CURRICULUM, str(len(stages))), NEW_STAGE)


def rename_key(draft: ProfileDocument, key: Key, meant: Key) -> ProfileDocument:
    """The draft with an unknown key's value, or all of an unknown table, under the name that was meant; one step."""
    file_values = read_keys(draft.text)
    if has_value(file_values, key):
        values = {meant: value_at(file_values, key)}
    else:
        values = {(*meant, *inner[len(key) :]): value for inner, value in values_under(file_values, key).items()}
    changed = draft.unset(key)
    for name, value in values.items():
        changed = changed.set(name, value)
    return changed.since(draft)


def unset_row(draft: ProfileDocument, row: FormRow) -> ProfileDocument:
    """The draft without the row's key; one step.

    A source that is a text goes with its path, and a stage that says nothing with any of its keys.
    """
    key, file_values = row.key, read_keys(draft.text)
    if row.kind == "unknown" or has_value(file_values, key):
        return draft.unset(key)
    if len(key) == 4 and key[-1] == "path":
        for whole in (key[:3], key[:2]):
            if has_value(file_values, whole):
                return draft.unset(whole)
    if len(key) == 3 and value_at(file_values, key[:2]) == {}:
        return draft.unset(key[:2])
    if row.field is not None and row.field.kind == "group":
        return _without(draft, values_under(file_values, key)).since(draft)
    return draft


def removed_keys(before: ProfileDocument, after: ProfileDocument, key: Key) -> list[str]:
    """Names of keys that are gone from the text after `key` was set, those below `key` aside."""
    file_values = read_keys(after.text)
    return [".".join(name) for name in read_keys(before.text) if name not in file_values and name[:2] != key[:2]]


def _without(draft: ProfileDocument, keys: Iterable[Key]) -> ProfileDocument:
    for key in keys:
        draft = draft.unset(key)
    return draft


def _put(draft: ProfileDocument, key: Key, source: str) -> ProfileDocument:
    """With the value, and in the place of one that excludes it where its line can be had."""
    excluded = _excluded_keys(draft, key) if parse_toml_value(source) != NONE else []
    changed = _without(draft, excluded).put(key, source)
    for other in excluded:
        rest = _without(draft, [name for name in excluded if name != other])
        is_dos = rest.text.count("\n") == rest.text.count("\r\n")
        with suppress(KeyError, ValueError):  # it has no line of its own: the end of the table will do
            text = swap_key(rest.text.replace("\r\n", "\n") if is_dos else rest.text, other, key, source)
            text = text.replace("\n", "\r\n") if is_dos else text
            if read_keys(text) == read_keys(changed.text):
                return draft.to(text)
    return changed


def _excluded_keys(draft: ProfileDocument, key: Key) -> list[Key]:
    """Keys of the text that exclude this one: a run has one end, a model one origin."""
    file_values = read_keys(draft.text)
    excluded: list[Key] = []
    for group in EXCLUSIVE:
        mine = [choice for choice in group if key[: len(choice)] == choice]
        others = [choice for choice in group if choice not in mine] if mine else []
        excluded += [name for name in file_values if any(name[: len(other)] == other for other in others)]
    return [name for name in excluded if file_values[name] != NONE]


def _put_into_source(draft: ProfileDocument, key: Key, source: str) -> ProfileDocument:
    """With a key of one source: a text becomes a table as soon as it has anything but its path.

    Or with a key of one table of a list, which is made where it is not there yet.
    """
    whole, place, name = key[:-2], key[:-1], key[-1]
    tables = value_at(read_keys(draft.text), whole)
    is_list = isinstance(tables, list)
    old = tables[int(place[-1])] if is_list and int(place[-1]) < len(tables) else tables
    if isinstance(old, dict) and (is_list or whole == CURRICULUM):
        return draft.put(key, source)
    at = place if is_list else whole
    if name == "path" and whole != CURRICULUM:
        return draft.put(at, source)
    path = {"path": old} if isinstance(old, str) and whole != CURRICULUM else {}
    table = {**path, name: parse_toml_value(source)}
    return draft.set(at, table if is_list else [table])
