"""A TOML text cut into its statements, each with its lines and its key: what a change may touch, what it may not."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ftui.profile.origins import Key

_KEY = re.compile(r"""[ \t]*(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[ \t.])+=[ \t]*""", re.ASCII)
_HEAD = re.compile(r"""[ \t]*\[{1,2}((?:[^\]"'#]|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')*)\]""")
_CLOSING = re.compile(r"[\]}\"']")


@dataclass(frozen=True)
class Statement:
    """A head, a key with its value, or a line that is neither (`other`: blank, or a remark).

    Attributes:
        key: from the top, with the numbers of places in lists of tables; of `other`, of the table it stands in.
        start, end: in the text; the end is behind the line's end.
    """

    kind: Literal["head", "pair", "other"]
    key: Key
    start: int
    end: int

    def is_under(self, key: Key) -> bool:
        """Whether it says something of the key itself or of what is inside it."""
        return self.kind != "other" and self.key[: len(key)] == key


def statements(text: str) -> list[Statement]:
    """All of a text that is TOML, in order and without gaps; lines end with `\\n`.

    Raises:
        ValueError: it is no TOML.
    """
    found: list[Statement] = []
    counts: dict[Key, int] = {}  # tables of each list so far
    table: Key = ()
    start = 0
    while start < len(text):
        end = _end_of_line(text, start)
        line = text[start:end].strip(" \t\n")
        if not line or line.startswith("#"):
            found.append(Statement("other", table, start, end))
        elif line.startswith("["):
            table = _table(line, counts)
            found.append(Statement("head", table, start, end))
        else:
            end = _end_of_value(text, start, end)
            found.append(Statement("pair", (*table, *_names(text[start:end])), start, end))
        start = end
    return found


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end + 1


def _end_of_value(text: str, start: int, end: int) -> int:
    """Behind the last line of the value that begins in the line up to `end`."""
    while not _is_toml(text[start:end]):
        if end >= len(text):
            raise ValueError("a value has no end")
        begin, end = end, _end_of_line(text, end)
        while end < len(text) and not _CLOSING.search(text, begin, end):
            begin, end = end, _end_of_line(text, end)
    return end


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


def _table(line: str, counts: dict[Key, int]) -> Key:
    """The table that begins with this head; `counts` takes a new one of a list in."""
    match = _HEAD.match(line)
    if match is None:
        raise ValueError(f"{line!r} is no head of a table")
    names = _names(f"{match[1]} = 0")
    is_listed = line.startswith("[[")
    key: Key = ()
    for number, name in enumerate(names, start=1):
        key = (*key, name)
        if is_listed and number == len(names):
            counts[key] = counts.get(key, 0) + 1
        if key in counts:
            key = (*key, str(counts[key] - 1))
    return key


def _names(pair: str) -> Key:
    """`("a", "b")` of `a.b = {c = 1}`."""
    match = _KEY.match(pair)
    if match is None:
        raise ValueError(f"{pair!r} has no key")
    value: Any = tomllib.loads(pair[: match.end()] + "0")
    names: list[str] = []
    while isinstance(value, dict):
        ((name, value),) = value.items()
        names.append(name)
    return tuple(names)


def value_span(text: str) -> tuple[int, int]:
    """Where the value of a pair begins and ends in its text.

    Raises:
        ValueError: there is none.
    """
    match = _KEY.match(text)
    if match is None:
        raise ValueError(f"{text!r} has no key")
    body = text[: _remark_at(text)]
    return match.end(), len(body.rstrip(" \t\n"))


def comment_of(text: str) -> str:
    """What stands behind a `#` at the end of a head or a pair, with it; empty where nothing does."""
    return text[_remark_at(text) :].rstrip("\n")


def _remark_at(text: str) -> int:
    places = (match.start() for match in re.finditer("#", text))
    return next((place for place in places if _is_toml(text[:place])), len(text))


def lines_to_keep(text: str, key: Key) -> Iterator[str]:
    """The lines that a change of this key has to leave as they are: blank ones aside, all but those that spell it.

    Those are the key itself with all inside it, and a value around it. Remarks in lines of their own stay always.
    """
    for one in statements(text):
        spells = one.is_under(key) or (one.kind == "pair" and key[: len(one.key)] == one.key)
        if not spells:
            yield from (line.rstrip() for line in text[one.start : one.end].split("\n") if line.strip())


def remove_statements(text: str, key: Key, *, keeps_remarks: bool = False) -> str:
    """The text without all statements about the key; `keeps_remarks`: what stood behind them gets lines of its own.

    Raises:
        KeyError: there are none: it is nowhere, or inside a value.
    """
    parts: list[str] = []
    is_gone = is_between = False
    for one in statements(text):
        piece = text[one.start : one.end]
        if one.is_under(key):
            is_gone = True
            if keeps_remarks and (remark := comment_of(piece)):
                parts.append(remark + "\n")
            is_between = not parts or not parts[-1].strip()
        elif is_between and not piece.strip():
            is_between = False  # one blank line where the statements stood between two
        else:
            is_between = False
            parts.append(piece)
    if not is_gone:
        raise KeyError(key[-1])
    return "".join(parts)
