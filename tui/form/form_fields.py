"""The fields of the form, made from the profile's own models: what may stand at each key, and what it means.

It loads pydantic (0.1 s), so screens import it only when the editor opens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ftui.profile.checks.messages import tables_in
from ftui.profile.origins import Key
from ftui.profile.paths import FILES, FOLDERS
from ftui.profile.schema import Profile
from ftui.profile.sections.fields import affects_weights

Kind = Literal["switch", "choice", "whole", "number", "text", "list", "texts", "table", "sources", "tables", "group"]
"""How a value is edited. `texts`: one text or a list of them; `sources`: rows, as a text, a list or tables; `tables`: a
list of tables; `group`: a table with keys of its own."""

BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
KINDS: dict[Kind, str] = {
    "switch": "true or false", "choice": "one of", "whole": "whole number", "number": "number", "text": "text",
    "list": "list", "texts": "a text or a list of texts", "table": "table of name = number", "sources": "rows",
    "tables": "list of tables", "group": "table",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One key of the profile.

    Attributes:
        key: of a table in a list without the number: `("data", "train", "weight")`.
        choices: as TOML spells their values but for the quotes.
        limits: such as `> 0`.
        items: of a list: the type of each.
        inside: the keys of a group, or of each table of sources or of a list.
    """

    key: Key
    kind: Kind
    meaning: str
    choices: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    default: Any = None
    is_required: bool = False
    is_optional: bool = False
    weights: bool = False
    items: type | None = None
    inside: tuple["Field", ...] = ()

    @property
    def name(self) -> str:
        """As `--set` spells it."""
        return ".".join(self.key)

    @property
    def picks(self) -> Literal["model", "data"] | None:
        """What a list offers for it, where it is chosen rather than typed."""
        if self.key[:2] in FILES and self.key[2:] in ((), ("path",)):
            return "data"
        return "model" if self.key in FOLDERS else None

    @property
    def is_chosen(self) -> bool:
        """Whether it, or each item of it, is chosen from a list rather than typed."""
        return self.picks is not None or self.kind == "choice" or (self.kind == "list" and bool(self.choices))


@dataclass(frozen=True)
class Heading:
    """One table of the profile."""

    name: str
    meaning: str
    fields: tuple[Field, ...]


@cache
def headings() -> tuple[Heading, ...]:
    """Every table of the profile in its order."""
    sections = []
    for name, info in Profile.model_fields.items():
        (section,) = tables_in(info.annotation)
        words = " ".join((section.__doc__ or "").split()).partition(": ")[2]
        if get_origin(info.annotation) is tuple:
            fields: tuple[Field, ...] = (replace(_field((name,), info), meaning=words, default=None),)
        else:
            fields = _fields(section, (name,))
        sections.append(Heading(name, words, fields))
    return tuple(sections)


@cache
def all_fields() -> tuple[Field, ...]:
    """Every field, also those inside others."""

    def walk(fields: tuple[Field, ...]) -> Iterator[Field]:
        for field in fields:
            yield field
            yield from walk(field.inside)

    return tuple(field for heading in headings() for field in walk(heading.fields))


@cache
def _by_key() -> dict[Key, Field]:
    return {field.key: field for field in all_fields()}


def field_at(key: Key) -> Field | None:
    """The field of a key, whatever places in lists are in it; `None`: there is no such key."""
    return _by_key().get(tuple(part for part in key if not part.isdigit()))


def _fields(section: type[BaseModel], above: Key) -> tuple[Field, ...]:
    return tuple(_field((*above, name), info) for name, info in section.model_fields.items())


def _field(key: Key, info: FieldInfo) -> Field:
    types = _types(info.annotation)
    plain = [kind for kind in types if kind is not type(None)]
    kind = _kind(key, plain)
    required = info.default is PydanticUndefined
    inner = tables_in(info.annotation)
    lists = [kind for kind in plain if get_origin(kind) is tuple]
    return Field(
        key,
        kind,
        " ".join((info.description or "").split()),
        choices=tuple(_choices(plain, optional=len(plain) < len(types))),
        limits=tuple(
            f"{sign} {getattr(m, name):g}" for m in info.metadata for name, sign in BOUNDS.items() if hasattr(m, name)
        ),
        default=None if required else info.default,
        is_required=required,
        is_optional=len(plain) < len(types),
        weights=affects_weights(info),
        items=_item_type(lists[0]) if kind in ("list", "texts") and lists else None,
        inside=_fields(inner[0], key) if inner else (),
    )


def _types(annotation: Any) -> list[Any]:
    """The types of a union, also those of unions inside it."""
    if get_origin(annotation) is Annotated:
        return _types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for inner in get_args(annotation) for kind in _types(inner)]
    return [annotation]


def _kind(key: Key, types: list[Any]) -> Kind:
    if key in FILES:
        return "sources"
    if any(get_origin(kind) is tuple and tables_in(kind) for kind in types):
        return "tables"
    if any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in types):
        return "group"
    origins = {get_origin(kind) for kind in types}
    if tuple in origins:
        return "texts" if str in types else "list"
    if dict in origins:
        return "table"
    if Literal in origins:
        return "choice"
    if types == [bool]:
        return "switch"
    if float in types:
        return "number"
    return "whole" if types == [int] else "text"


def _choices(types: list[Any], *, optional: bool) -> Iterator[str]:
    """The values a key (or each item of its list) may have, where they can be counted."""
    items = [inner for kind in types if get_origin(kind) is tuple for inner in _types(get_args(kind)[0])]
    choices = [choice for kind in [*types, *items] if get_origin(kind) is Literal for choice in get_args(kind)]
    if types == [bool]:
        choices = ["true", "false"]
    yield from map(str, choices)
    if choices and optional and "none" not in choices:
        yield "none"


def _item_type(annotation: Any) -> type:
    first = _types(get_args(annotation)[0])[0]
    return first if isinstance(first, type) else str
