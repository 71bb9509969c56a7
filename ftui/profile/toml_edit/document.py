"""A profile while it is being edited: its text, every text before it, and changes that leave comments and order alone.

Whole statements are changed as text (statements.py), what is inside a value with tomlkit. What comes of it is read back
with tomllib, and a way that would have changed another value or another line is not taken. So no quirk of a writer can
lose a value or a remark.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from ftui.errors import ProfileError
from ftui.profile.origins import Key
from ftui.profile.schema import Profile
from ftui.profile.toml_edit.statements import (
    add_beside,
    add_tables,
    add_to_table,
    head_of,
    lines_to_keep,
    remove_statements,
    replace_value,
    statements,
)
from ftui.profile.toml_reader import BOM

MOST_TEXTS = 2000  # a text is a few KiB
QUIRKS = (TOMLKitError, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What tomlkit raises on texts that are TOML but not to its liking."""
Writer = Callable[[str, Key, str], str]


@dataclass(frozen=True)
class ProfileDocument:
    """The text as it stands, the texts before it, and those that were undone (the next one last)."""

    text: str
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()

    def set(self, key: Key, value: Any) -> "ProfileDocument":
        """With that value at the key; `None` is "none". A number in the key is a place in a list, its length the end.

        Raises:
            ProfileError: the text cannot take it.
        """
        return self.put(key, toml_source(value))

    def put(self, key: Key, source: str) -> "ProfileDocument":
        """The same for a value as TOML spells it: `2e-4` stays `2e-4`.

        Raises:
            ProfileError: it is no value, or the text cannot take it.
        """
        return self.to(set_key(self.text, key, source))

    def unset(self, key: Key) -> "ProfileDocument":
        """Without the key: its value is then the tier's or the default.

        Raises:
            ProfileError: the text cannot do without it.
        """
        return self.to(remove_key(self.text, key))

    def to(self, text: str) -> "ProfileDocument":
        """Another text; the same one is no step."""
        return self if text == self.text else ProfileDocument(text, (*self.past, self.text)[-MOST_TEXTS:])

    def undone(self) -> "ProfileDocument":
        """One step back; unchanged where there is none."""
        return self if not self.past else ProfileDocument(self.past[-1], self.past[:-1], (*self.future, self.text))

    def redone(self) -> "ProfileDocument":
        """One step forward again; unchanged where none was undone."""
        return self if not self.future else ProfileDocument(self.future[-1], (*self.past, self.text), self.future[:-1])

    def since(self, before: "ProfileDocument") -> "ProfileDocument":
        """All that was done since `before` as one step."""
        return self if self.text == before.text else replace(before.to(self.text))


def toml_source(value: Any) -> str:
    """The value as TOML spells it, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{head_of((name,))} = {toml_source(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_source(one) for one in value) + "]"
    return tomlkit.item("none" if value is None else value).as_string()


def parse_toml_value(source: str) -> Any:
    """The value that a TOML source stands for.

    Raises:
        ProfileError: it is none.
    """
    try:
        table = tomllib.loads(f"value = {source}")
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{source} is no value: {error}.", hint='Put texts in quotes: "text".') from error
    if list(table) != ["value"]:
        raise ProfileError(f"{source!r} is more than one value.")
    return table["value"]


def set_key(text: str, key: Key, source: str) -> str:
    """The text with the value at the key; nothing else in it means anything else than before."""
    try:
        f"{key}{source}".encode()
    except UnicodeEncodeError as error:  # the name of a file that is no UTF-8
        raise ProfileError(f"{source!r} is not valid text.", hint="Give the file another name.") from error
    goal = _with_value(_read(text), key, parse_toml_value(source))
    for way in (replace_value, _replace_inside, _append, add_beside, add_key, _replace_tables, _rewrite_around):
        edited = _try(way, text, key, source, [goal], about=key[:-1] if way is _rewrite_around else key)
        if edited is not None:
            return edited
    raise ProfileError(f"{'.'.join(key)} cannot be set in this text.", hint="Write it into the file by hand.")


def remove_key(text: str, key: Key) -> str:
    """The text without the key; a table inside a section that is left empty goes too."""
    values = _read(text)
    if _value_at(values, key) is None:
        return text
    goal = _without(values, key)
    while (len(key) > 2 or (len(key) == 2 and key[1].isdigit())) and _value_at(goal, key[:-1]) in ({}, []):
        key = key[:-1]
        goal = _without(goal, key)
    accepted = [goal]
    for length in range(len(key) - 1, 0, -1):  # a table that only this key made goes with it
        if _value_at(accepted[-1], key[:length]) == {}:
            accepted.append(_without(accepted[-1], key[:length]))
    for way in (_remove_whole, _delete_inside):
        edited = _try(way, text, key, "", accepted, about=key)
        if edited is not None:
            return edited
    raise ProfileError(f"{'.'.join(key)} cannot be removed from this text.", hint="Remove it by hand.")


def add_key(text: str, key: Key, source: str) -> str:
    """A new key at the end of its table; a new table where the reference has it."""
    if len(key) == 1 or (len(key) == 2 and key[1].isdigit()):  # a list of tables at the top, or one more of it
        tables = parse_toml_value(source) if len(key) == 1 else [parse_toml_value(source)]
        lines = [[f"{head_of((name,))} = {toml_source(one)}" for name, one in table.items()] for table in tables]
        return add_tables(text, key[0], lines, list(Profile.model_fields))
    values = _read(text)
    blocking = next((key[:n] for n in range(1, len(key)) if not _can_hold(_value_at(values, key[:n]), key[n])), None)
    if blocking is not None:  # such as optim_args = "none"
        text = remove_statements(text, blocking, keeps_remarks=True)
    return add_to_table(text, key[:-1], f"{head_of(key[-1:])} = {source}", list(Profile.model_fields))


def _can_hold(value: Any, name: str) -> bool:
    return value is None or isinstance(value, dict) or (isinstance(value, list) and name.isdigit())


def _try(way: Writer, text: str, key: Key, source: str, goal: Sequence[Mapping[str, Any]], *, about: Key) -> str | None:
    """What the way makes of the text, if that means one of what was wanted. Line ends and a byte order mark stay.

    `about`: the key or table whose own lines may change.
    """
    body = text.removeprefix(BOM)
    is_dos = "\r\n" in body and body.count("\n") == body.count("\r\n")
    try:
        made = way(body.replace("\r\n", "\n") if is_dos else body, key, source)
        if _comparable(tomllib.loads(made)) not in map(_comparable, goal) or not _keeps_lines(body, made, about):
            return None
    except (*QUIRKS, ProfileError):
        return None
    return text[: len(text) - len(body)] + (made.replace("\n", "\r\n") if is_dos else made)


def _keeps_lines(before: str, made: str, key: Key) -> bool:
    """Whether every line that has nothing to do with the key stands in what was made, in the same order."""
    lines = iter([line.rstrip() for line in made.split("\n")])
    return all(line in lines for line in lines_to_keep(before.replace("\r\n", "\n"), key))


def _comparable(values: Mapping[str, Any]) -> str:
    """Comparable: NaN is NaN, and 1 is not 1.0."""
    return json.dumps(values, sort_keys=True, default=repr)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"This is not TOML: {error}.") from error


# -- values


def _value_at(values: Any, key: Key) -> Any:
    """The value there, `None` where there is none."""
    for name in key:
        if isinstance(values, list) and name.isdigit() and int(name) < len(values):
            values = values[int(name)]
        elif isinstance(values, dict) and name in values:
            values = values[name]
        else:
            return None
    return values


def _with_value(values: Any, key: Key, value: Any) -> Any:
    if not key:
        return value
    name, rest = key[0], key[1:]
    if isinstance(values, list) and name.isdigit():
        place = int(name)
        inner = values[place] if place < len(values) else None
        return [*values[:place], _with_value(inner, rest, value), *values[place + 1 :]]
    table = values if isinstance(values, dict) else {}
    return {**table, name: _with_value(table.get(name), rest, value)}


def _without(values: Any, key: Key) -> Any:
    name, rest = key[0], key[1:]
    if isinstance(values, list):
        place = int(name)
        return [*values[:place], *([_without(values[place], rest)] if rest else []), *values[place + 1 :]]
    return {k: _without(v, rest) if k == name else v for k, v in values.items() if rest or k != name}


# -- ways of writing


def _replace_inside(text: str, key: Key, source: str) -> str:
    """A value inside another one.

    Raises:
        KeyError: the key has statements of its own, or its table a head.
    """
    own = [one for one in statements(text) if one.is_under(key) or (one.kind == "head" and one.key == key[:-1])]
    if own or len(key) == 1:
        raise KeyError(key[-1])  # of whole statements: the other ways heed remarks
    document = tomlkit.parse(text)
    table: Any = _inside(document, key[:-1])
    table[int(key[-1]) if isinstance(table, AoT | Array) else key[-1]] = tomlkit.value(source)
    return document.as_string()


def _replace_tables(text: str, key: Key, source: str) -> str:
    """A value in the place of tables; what stood behind their keys is kept in lines of its own."""
    return add_key(remove_statements(text, key, keeps_remarks=True), key, source)


def _remove_whole(text: str, key: Key, source: str) -> str:
    """Without the statements about the key."""
    return remove_statements(text, key)


def _append(text: str, key: Key, source: str) -> str:
    """One more at the end of a list."""
    document = tomlkit.parse(text)
    values: Any = _inside(document, key[:-1])
    value = parse_toml_value(source)
    if isinstance(values, AoT) and len(key) > 2:
        table = tomlkit.table()
        table.update(value)
        values.append(table)
    elif isinstance(values, Array):
        values.append(tomlkit.value(source))
    else:
        raise KeyError(key[-1])
    return document.as_string()


def _rewrite_around(text: str, key: Key, source: str) -> str:
    """The table or list around it anew, in one line."""
    if len(key) < 2:
        raise KeyError(key[-1])
    around = _value_at(_read(text), key[:-1])
    return set_key(text, key[:-1], toml_source(_with_value(around, key[-1:], parse_toml_value(source))))


def _delete_inside(text: str, key: Key, source: str) -> str:
    document = tomlkit.parse(text)
    table: Any = _inside(document, key[:-1])
    del table[int(key[-1]) if isinstance(table, AoT | Array) else key[-1]]
    return document.as_string()


def _inside(document: Any, key: Key) -> Any:
    for name in _places(document, key):
        document = document[name]
    return document


def _places(document: Any, key: Key) -> Iterator[str | int]:
    """The key as tomlkit takes it: numbers for places in lists."""
    for name in key:
        place = int(name) if isinstance(document, AoT | Array) else name
        yield place
        document = document[place]
