"""Where in a TOML text a key stands, so that an error can name its line (tomllib keeps no positions)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

Key = tuple[str, ...]

_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]', re.DOTALL
)
_TABLE = re.compile(r"\s*(\[\[?)([^\n]*?)\]")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*'|\s*\.\s*)+?)\s*=")
_PART = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|([\w-]+)")


def _parts(dotted: str) -> Key:
    return tuple(next(part for part in found if part) if any(found) else "" for found in _PART.findall(dotted))


def nearest(known: Mapping[Key, int], key: Key) -> int | None:
    """The line of `key` among `known` ones, or of the nearest table above it."""
    return next((known[key[:length]] for length in range(len(key), 0, -1) if key[:length] in known), None)


def positions(text: str) -> dict[Key, int]:
    """The 1-based line of every key and every table's head, of each the first."""
    table: Key = ()
    found: dict[Key, int] = {}
    counts: Counter[Key] = Counter()
    for number, line in _statements(text):
        if match := _TABLE.match(line):
            here = table = _parts(match[2])
            if match[1] == "[[":  # the nth table of a list; the first one is where the list begins
                found.setdefault(here, number)
                counts[here] += 1
                here = table = (*here, str(counts[here] - 1))
        elif match := _KEY.match(line):
            here = (*table, *_parts(match[1]))
        else:
            continue
        found.setdefault(here, number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement's first line, and its text; a value of several lines (a list, a long text) is one statement."""
    begin, depth, number = 0, 0, 1
    for match in _STRINGS.finditer(text + "\n"):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth = max(0, depth - 1)
        elif token == "\n" and depth == 0:
            statement = text[begin : match.start()]
            yield number, statement
            number += statement.count("\n") + 1
            begin = match.end()
