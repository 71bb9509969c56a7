"""The JSON of one row, and in words whatever is wrong with it."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ftui.dataset.report import RowLocation

from .raw_rows import BadRow, Unit, kind_of_value

DEEPEST = 100  # levels of lists and objects; templates and later readers recurse, and have less room than the parser
SHAPE = 'A row is one object: {"messages": [{"role": "user", "content": "..."}, ...]} or {"prompt": "...", ...}.'
LISTED = "A list of rows is read from a file named .json; .jsonl has one object a line."
SPACED = (b" :", b"\t:", b"\n:", b"\r:")
MOST_DIGITS = 4300  # Python's limit: longer ones take it quadratic time
NUMBER = re.compile(rf"\d{{{MOST_DIGITS},}}")


class _DuplicateKey(Exception):
    """An object has this key twice: which of the two values is meant, nobody can tell."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = sorted(name for name, _ in pairs)
        raise _DuplicateKey(next(one for one, other in pairwise(names) if one == other))
    return value


_parse = json.JSONDecoder(object_pairs_hook=_object).decode
_decode = msgspec.json.Decoder().decode


def _parse_fast(text: bytes) -> dict[str, Any] | None:
    """The object, three times as fast as with a look at each key; `None` where that look is needed.

    Every key is followed by a colon: with as many colons as keys in the objects, none was there twice. Colons behind
    a quote are fewer, and are all there are of keys unless one has space before it.
    """
    try:
        value = _decode(text)
        num_keys = _num_keys(value, DEEPEST) if type(value) is dict else -1
    except (ValueError, RecursionError):
        return None
    if num_keys == text.count(b":"):
        return value  # type: ignore[no-any-return]
    return value if num_keys == text.count(b'":') and not any(spaced in text for spaced in SPACED) else None


def _num_keys(value: Any, room: int) -> int:
    if not room:
        raise RecursionError
    num_keys, inside = (len(value), value.values()) if type(value) is dict else (0, value)
    for inner in inside:
        if type(inner) is dict or type(inner) is list:
            num_keys += _num_keys(inner, room - 1)
    return num_keys


def parse_row(
    text: bytes, path: Path, place: int, unit: Unit, offset: int = -1, line: int = 0
) -> dict[str, Any] | BadRow:
    """The object, or what is wrong. `offset` is the byte of the file, `line` the line on which `text` begins."""
    value = _parse_fast(text)
    if value is not None:
        return value
    try:
        value = _parse(text.decode())
        return _sound(value, text.decode(), RowLocation(str(path), place, unit), line)
    except (ValueError, RecursionError, _DuplicateKey) as error:
        return _explain_fault(error, text, RowLocation(str(path), place, unit), offset, line)


def _explain_fault(error: Exception, text: bytes, where: RowLocation, offset: int, line: int) -> BadRow:
    said = text.decode(errors="replace")
    match error:
        case UnicodeDecodeError():
            byte = max(offset, 0) + error.start
            return BadRow(where, f"not UTF-8 (byte {byte}: 0x{text[error.start]:02x})", "Set data.encoding.")
        case json.JSONDecodeError():
            return _not_json(error, where, line)
        case _DuplicateKey():
            name = str(error)
            second = [match.start() for match in re.finditer(re.escape(json.dumps(name)), said)][1:2]
            return _fault_at(
                said, second[0] if second else None, where, line, f"the key {name!r} stands twice in an object"
            )
        case RecursionError():
            return BadRow(where, f"nested too deeply (more than {DEEPEST} levels)", SHAPE, line=line or None)
    number = NUMBER.search(said)
    reason = f"a number of more than {MOST_DIGITS} digits" if number else str(error)
    return _fault_at(said, number.start() if number else None, where, line, reason, "Delete that row.")


def _sound(value: Any, said: str, where: RowLocation, line: int) -> dict[str, Any] | BadRow:
    if not isinstance(value, dict):
        hint = LISTED if isinstance(value, list) and where.unit == "line" else SHAPE
        return BadRow(where, f"a JSON {kind_of_value(value)}, not an object", hint, line=line or None)
    return _unsound(value, said, where, line) or value


def _unsound(value: dict[str, Any], said: str, where: RowLocation, line: int) -> BadRow | None:
    """Halves of characters (`\\ud83d` without its other half is JSON, but no text), and depth."""
    if "\\u" in said and "\\ud" in said.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            place = said.lower().find(half)
            return _fault_at(said, place, where, line, f"{half} is half a character", "Delete it.")
    if said.count("[") + said.count("{") > DEEPEST and _is_deep(value):
        return BadRow(where, f"nested too deeply (more than {DEEPEST} levels)", SHAPE, line=line or None)
    return None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _not_json(error: json.JSONDecodeError, where: RowLocation, line: int) -> BadRow:
    said, place = error.doc, error.pos
    hint = 'Mend or delete that row, or leave out all such rows: data.on_bad_row = "skip".'
    if said.lstrip()[:1] == "[" and where.unit == "line":
        reason, hint = f"not JSON ({error.msg})", LISTED
    elif "\0" in said:
        place, reason = said.index("\0"), "NUL bytes, as a crash or a full disk leaves them"
    elif place >= len(said.rstrip()) or error.msg.startswith("Unterminated string"):
        reason, hint = "the JSON ends in the middle", "Delete that row, or copy the file again if it is the last one."
    else:
        reason = f"not JSON ({error.msg})"
        if said[place : place + 1] == "'":
            hint = "Strings and keys need double quotes: this is how Python prints, json.dumps writes JSON."
    return _fault_at(said, place, where, line, reason, hint)


def _fault_at(said: str, place: int | None, where: RowLocation, line: int, reason: str, hint: str = SHAPE) -> BadRow:
    """A fault at a character of the row."""
    if place is None or place < 0:
        return BadRow(where, reason, hint, line=line or None)
    column = place - said.rfind("\n", 0, place)
    near = said[max(0, place - 20) : place + 20].strip()
    first = line or (where.number if where.unit == "line" else 0)
    its_line = first + said.count("\n", 0, place) if first else None
    return BadRow(where, reason, hint, column, near, its_line)
