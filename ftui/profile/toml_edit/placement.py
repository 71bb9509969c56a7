"""Where in a TOML text a value stands, and where a new key goes: below the last one of its table, before the next."""

import re
from collections.abc import Sequence

from ftui.profile.origins import Key
from ftui.profile.toml_edit.statements import Statement, statements, value_span

_BARE = re.compile(r"[\w-]+", re.ASCII)


def head_of(table: Key) -> str:
    """`train.optim_args`, as it stands between brackets."""
    return ".".join(name if _BARE.fullmatch(name) else '"' + name.replace('"', '\\"') + '"' for name in table)


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
    place = _before_later(text, heads, table, order)
    head = head_of(table)
    if place is None:
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}[{head}]\n{line}\n"
    return f"{text[:place]}[{head}]\n{line}\n\n{text[place:]}"


def add_tables(text: str, name: str, tables: Sequence[Sequence[str]], order: Sequence[str]) -> str:
    """The text with a list of tables at the top that is not there yet; `tables`: the lines of each.

    Raises:
        ValueError: the text is no TOML.
    """
    blocks = "\n".join("\n".join([f"[[{name}]]", *lines]) + "\n" for lines in tables)
    place = _before_later(text, [one for one in statements(text) if one.kind == "head"], (name,), order)
    if place is None:
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{blocks}"
    return f"{text[:place]}{blocks}\n{text[place:]}"


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


def _before_later(text: str, heads: Sequence[Statement], table: Key, order: Sequence[str]) -> int | None:
    """The beginning of the first table (with its remarks) that comes after this one; `None`: it is the last."""
    rank = _rank(table, order)
    later = [one.start for one in heads if _rank(one.key, order) > rank]
    if not later:
        return None
    above = text[: later[0]].splitlines(keepends=True)
    while above and above[-1].lstrip().startswith("#"):
        above.pop()
    return sum(map(len, above)) if above else later[0]


def _rank(table: Key, order: Sequence[str]) -> int:
    return order.index(table[0]) if table[0] in order else len(order)
