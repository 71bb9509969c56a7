"""A TOML text cut into its statements, each with its lines and key, and where a value stands or a new key goes.

By hand, since tomllib keeps no positions, and tomlkit's change when it edits.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ftui.profile.origins import Key

_BARE = re.compile(r"[\w-]+", re.ASCII)
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]', re.DOTALL
)
_KEY = re.compile(r"""[ \t]*(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[ \t.])+=[ \t]*""", re.ASCII)
_HEAD = re.compile(r"""[ \t]*\[{1,2}((?:[^\]"'#]|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')*)\]""")


@dataclass(frozen=True)
class Statement:
    """A head, a key with its value, or a line that is neither (`other`: blank, or a comment).

    Attributes:
        key: from the top, with the numbers of tables in lists; of `other`, the table it is in.
        start, end: offsets in the text; the end is behind the line's end.
    """

    kind: Literal["head", "pair", "other"]
    key: Key
    start: int
    end: int

    def is_under(self, key: Key) -> bool:
        """Whether it sets the key itself, or something inside it."""
        return self.kind != "other" and self.key[: len(key)] == key


def statements(text: str) -> list[Statement]:
    """All statements of a text that is TOML, in order and without gaps; lines end with `\\n`.

    Raises:
        ValueError: the text is not TOML.
    """
    result: list[Statement] = []
    counts: dict[Key, int] = {}  # tables of each list so far
    table: Key = ()
    for start, end in _spans(text):
        line = text[start:end].strip(" \t\n")
        if not line or line.startswith("#"):
            result.append(Statement("other", table, start, end))
        elif line.startswith("["):
            table = _table(line, counts)
            result.append(Statement("head", table, start, end))
        else:
            result.append(Statement("pair", (*table, *_names(line)), start, end))
    return result


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each statement begins and ends; a value of several lines belongs to one statement."""
    start = depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif token == "\n" and depth <= 0:
            yield start, match.end()
            start, depth = match.end(), 0
    if depth > 0:
        raise ValueError("a value has no end")
    if start < len(text):
        yield start, len(text)


def line_numbers(text: str) -> dict[Key, int]:
    """The 1-based line of every key and every head, each at its first place; of a list of tables, also the list's.

    Raises:
        ValueError: the text is not TOML.
    """
    text = text.replace("\r\n", "\n")
    lines: dict[Key, int] = {}
    number = 1
    for one in statements(text):
        if one.kind != "other":
            if one.kind == "head" and one.key[-1].isdigit():
                lines.setdefault(one.key[:-1], number)
            lines.setdefault(one.key, number)
        number += text.count("\n", one.start, one.end)
    return lines


def nearest_line(lines: Mapping[Key, int], key: Key) -> int | None:
    """The line of `key`, or else of the nearest table around it."""
    return next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), None)


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
    body = text[: _comment_at(text)]
    return match.end(), len(body.rstrip(" \t\n"))


def comment_of(text: str) -> str:
    """What stands behind a `#` at the end of a head or a pair, with it; empty where nothing does."""
    return text[_comment_at(text) :].rstrip("\n")


def _comment_at(text: str) -> int:
    """Where the comment behind a head or a pair begins; the text's end where there is none."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0 and match[0].startswith("#"):
            return match.start()
    return len(text)


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


# -- where a value stands, and where a new key goes: below the last one of its table, before the next


def head_of(table: Key) -> str:
    """`train.optim_args`, as it stands between brackets, or before a `=`."""
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in table)


def replace_value(text: str, key: Key, source: str) -> str:
    """A value in the place of another one; what stands behind it in its line stays in its column where there is room.

    Raises:
        KeyError: no statement is about the key alone.
    """
    one = next((one for one in statements(text) if one.kind == "pair" and one.key == key), None)
    if one is None:
        raise KeyError(key[-1])
    piece = text[one.start : one.end]
    start, end = value_span(piece)
    rest, old = piece[end:], piece[start:end]
    if (remark := rest.lstrip(" \t")).startswith("#") and "\n" not in old:
        rest = " " * max(1, len(rest) - len(remark) + len(old) - len(source)) + remark
    return text[: one.start] + piece[:start] + source + rest + text[one.end :]


def swap_key(text: str, old: Key, key: Key, source: str) -> str:
    """A key in the place of another one of its table, whose line goes with what stood behind it.

    Raises:
        KeyError: no statement is about the other one alone.
        ValueError: the text is no TOML.
    """
    one = next((one for one in statements(text) if one.kind == "pair" and one.key == old), None)
    if one is None or old[:-1] != key[:-1]:
        raise KeyError(old[-1])
    piece = text[one.start : one.end]
    before, _, behind = piece[: value_span(piece)[0]].rpartition(old[-1])
    if behind.strip() != "=":  # the other one stands in quotes
        raise KeyError(old[-1])
    ending = "\n" if piece.endswith("\n") else ""
    return f"{text[: one.start]}{before}{key[-1]}{behind}{source}{ending}{text[one.end :]}"


def add_beside(text: str, key: Key, source: str) -> str:
    """One more of a table that is spelt `table.name = value`, below the last one.

    Raises:
        KeyError: it is not.
    """
    known = statements(text)
    last = next(
        (n for n in range(len(known) - 1, -1, -1) if known[n].kind == "pair" and known[n].is_under(key[:-1])), None
    )
    heads = [] if last is None else [one.key for one in known[:last] if one.kind == "head"]
    table = heads[-1] if heads else ()
    if last is None or len(table) >= len(key) - 1:
        raise KeyError(key[-1])
    place = known[last].end
    gap = "" if text[:place].endswith("\n") else "\n"
    return f"{text[:place]}{gap}{head_of(key[len(table) :])} = {source}\n{text[place:]}"


def add_to_table(text: str, table: Key, line: str, order: Sequence[str]) -> str:
    """The text with `line` at the end of the table, which is made where it is not there yet.

    `order`: names of the tables at the top in the order in which new ones are to stand.

    Raises:
        ValueError: the text is no TOML.
    """
    heads = [one for one in statements(text) if one.kind == "head"]
    ends = [*(one.start for one in heads[1:]), len(text)]
    for one, end in zip(heads, ends, strict=False):  # a text without a table has an end too
        if one.key == table:
            return _put(text, _end_of(text, one.start, end), line)
    return _put_block(text, heads, table, f"[{head_of(table)}]\n{line}\n", order)


def add_tables(text: str, name: str, tables: Sequence[Sequence[str]], order: Sequence[str]) -> str:
    """The text with a list of tables at the top that is not there yet; `tables`: the lines of each.

    Raises:
        ValueError: the text is no TOML.
    """
    blocks = "\n".join("\n".join([f"[[{name}]]", *lines]) + "\n" for lines in tables)
    return _put_block(text, [one for one in statements(text) if one.kind == "head"], (name,), blocks, order)


def _put_block(text: str, heads: Sequence[Statement], table: Key, block: str, order: Sequence[str]) -> str:
    """The text with the lines of a table that it lacks before the first table (with its remarks) that comes later."""
    rank = _rank(table, order)
    later = next((one.start for one in heads if _rank(one.key, order) > rank), None)
    if later is None:
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{block}"
    above = text[:later].splitlines(keepends=True)
    while above and above[-1].lstrip().startswith("#"):
        above.pop()
    place = sum(map(len, above)) if above else later
    return f"{text[:place]}{block}\n{text[place:]}"


def _end_of(text: str, start: int, end: int) -> int:
    """The end of the table's last line: without blank lines, and without the remarks above the next head or the end."""
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and lines[-1].lstrip().startswith("#"):
        lines.pop()
    if lines[-1].strip():  # they were right below the last key: they are the table's own
        lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    return start + sum(map(len, lines))


def _put(text: str, place: int, line: str) -> str:
    before, after = text[:place], text[place:]
    if before.endswith("\n"):
        return f"{before}{line}\n{after}"
    return f"{before}\n{line}{after}"  # the last line has no end, and goes on having none


def _rank(table: Key, order: Sequence[str]) -> int:
    return order.index(table[0]) if table[0] in order else len(order)
