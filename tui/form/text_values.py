"""What is typed into a field and what stands in it: from a value to the text of a line, and back to TOML."""

import re
import tomllib
from typing import Any

from ftui.errors import ProfileError
from ftui.profile.toml_edit.document import source_of, value_of
from ftui.text import escaped, shown

from .form_fields import Field

NONE = "none"
SMALL = 1e-3  # numbers below it are written with an exponent
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


def spelt(value: Any) -> str:
    """A value as the form shows it and as it can be typed again: texts without quotes, small numbers as `2e-4`."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        is_plain = value == value.strip() == shown(value) and value[:1] not in ("[", "{", '"', "'") and value
        return value if is_plain else escaped(source_of(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inner(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {inner(one)}" for name, one in value.items()) + "}"
    return str(value)


def inner(value: Any) -> str:
    """The same inside a list or a table, where texts keep their quotes."""
    return escaped(source_of(value)) if isinstance(value, str) else spelt(value)


def number(value: float) -> str:
    """`2e-4`, `0.03`, `1.0`: the fewest digits that mean the same number."""
    if value and abs(value) < SMALL:
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        digits = next(t for n in range(17) if float(t := f"{value:.{n}e}") == value)
        mantissa, _, exponent = digits.partition("e")
        return f"{mantissa}e{int(exponent)}"
    return repr(value)


def source_for(field: Field, text: str) -> str:
    """What was typed into the field as TOML.

    Raises:
        ProfileError: it is begun as a list, a table or a quoted text, and is none.
    """
    text = text.strip()
    if text == NONE and (field.is_optional or field.kind in ("sources", "tables", "group")):
        return source_of(NONE)
    if field.kind in ("whole", "number", "switch") or (field.kind == "choice" and text.isdigit()):
        return text if _is_plain(text) else source_of(text)
    if text[:1] in ("[", "{"):
        value_of(text)
        return text
    if field.kind == "list":
        return "[" + ", ".join(_item(field, part) for part in _parts(text)) + "]"
    if field.kind == "table":
        wrapped = "{ " + text + " }"
        value_of(wrapped)
        return wrapped
    if field.kind == "text" and text in ("true", "false") and isinstance(field.default, bool):
        return text
    if text[:1] in ('"', "'") and isinstance(value_of(text), str):
        return text
    return source_of(text)


def _is_plain(text: str) -> bool:
    """Whether it is a number, `true`, `false`, `nan`: a value that stands without quotes."""
    try:
        value = tomllib.loads(f"value = {text}")
    except ValueError:
        return False
    return list(value) == ["value"] and isinstance(value["value"], bool | int | float)


def _parts(text: str) -> list[str]:
    """What stands between commas; those in quotes do not count."""
    held = _QUOTED.sub(lambda match: match[0].replace(",", "\0"), text)
    return [part for piece in held.split(",") if (part := piece.replace("\0", ",").strip())]


def _item(field: Field, part: str) -> str:
    if field.items is not str and _is_plain(part):
        return part
    return part if _QUOTED.fullmatch(part) else source_of(part)


def problem_with(field: Field, text: str) -> str:
    """Why this cannot be written as TOML at all, in words; empty where it can."""
    try:
        source_for(field, text)
    except ProfileError as error:
        return f"{error.message} {error.hint}".strip()
    return ""
