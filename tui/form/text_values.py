"""The values of the form as text: from a value to what stands in a line, and from what is typed back to TOML."""

import re
import tomllib
from typing import Any

from ftui.profile.toml_edit.document import parse_toml_value, toml_source
from ftui.text import escape_document, shown

from .form_fields import Field

NONE = "none"
SMALL = 1e-3  # numbers below it are written with an exponent
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


def format_value(value: Any) -> str:
    """A value as the form shows it and as it can be typed again: texts without quotes, small numbers as `2e-4`."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_number(value)
    if isinstance(value, str):
        is_plain = value == value.strip() == shown(value) and value[:1] not in ("[", "{", '"', "'") and value
        return value if is_plain else escape_document(toml_source(value))
    if isinstance(value, list | tuple):
        return format_list(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_format_item(item)}" for name, item in value.items()) + "}"
    return str(value)


def format_list(items: list[Any] | tuple[Any, ...]) -> str:
    """The same for a list, in which texts keep their quotes."""
    return "[" + ", ".join(map(_format_item, items)) + "]"


def _format_item(value: Any) -> str:
    return escape_document(toml_source(value)) if isinstance(value, str) else format_value(value)


def _format_number(value: float) -> str:
    """`2e-4`, `0.03`, `1.0`: the fewest digits that mean the same number."""
    if value and abs(value) < SMALL:
        shortest = next(text for n in range(17) if float(text := f"{value:.{n}e}") == value)
        mantissa, _, exponent = shortest.partition("e")
        return f"{mantissa}e{int(exponent)}"
    return repr(value)


def parse_value(field: Field, text: str) -> str:
    """What was typed into the field, as TOML.

    Raises:
        ProfileError: it starts like a list, a table or a quoted text, and is none.
    """
    text = text.strip()
    if text == NONE and (field.is_optional or field.kind in ("sources", "tables", "group")):
        return toml_source(NONE)
    if field.kind in ("whole", "number", "switch") or (field.kind == "choice" and text.isdigit()):
        return text if _is_plain(text) else toml_source(text)
    if text[:1] in ("[", "{"):
        parse_toml_value(text)
        return text
    if field.kind == "list":
        return "[" + ", ".join(_parse_item(field, part) for part in _split_at_commas(text)) + "]"
    if field.kind == "table":
        table = "{ " + text + " }"
        parse_toml_value(table)
        return table
    if field.kind == "text" and text in ("true", "false") and isinstance(field.default, bool):
        return text
    if text[:1] in ('"', "'") and isinstance(parse_toml_value(text), str):
        return text
    return toml_source(text)


def _is_plain(text: str) -> bool:
    """Whether it is a number, `true`, `false`, `nan`: a value that stands without quotes."""
    try:
        value = tomllib.loads(f"value = {text}")
    except ValueError:
        return False
    return list(value) == ["value"] and isinstance(value["value"], bool | int | float)


def _split_at_commas(text: str) -> list[str]:
    """What stands between commas; those in quotes do not count."""
    hidden = _QUOTED.sub(lambda match: match[0].replace(",", "\0"), text)
    return [part for piece in hidden.split(",") if (part := piece.replace("\0", ",").strip())]


def _parse_item(field: Field, part: str) -> str:
    if field.items is not str and _is_plain(part):
        return part
    return part if _QUOTED.fullmatch(part) else toml_source(part)
