"""Rows out of CSV: any of the common delimiters, quoted line ends."""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from ftui.dataset.report import Where

from .csv_lines import CsvLines
from .jsonl import LONGEST, TOO_LONG
from .raw_rows import BadRow, RawRow

DELIMITERS = ",;\t|"
SEPARATOR = re.compile(r'"?sep=([^"\w\s]|\t)"?', re.IGNORECASE)
QUOTES = "A cell with the delimiter or a line end in it needs quotes, and a quote in it is doubled."
HEADER_AGAIN = 'Several files in one? Delete that line, or leave out all rows that are none: data.on_bad_row = "skip".'
csv.field_size_limit(LONGEST)  # the default refuses cells of more than 128 KiB


def csv_rows(
    path: str, chunks: Iterator[bytes], offset: int, delimiter: str | None = None
) -> Iterator[RawRow | BadRow]:
    """A header, then one row per record; a row's place is the line on which it begins.

    Without a `delimiter` it is the one of `,`, `;`, tab and `|` that cuts the header into the most columns. A first
    line `sep=;`, as Excel reads it, says it itself.

    Raises:
        DataError: there is something wrong with the header.
    """
    lines = CsvLines(path, chunks, offset)
    header = _header(path, lines, delimiter)
    if header is None:
        return
    names, how = header
    reader = csv.reader(lines, **how)
    while True:
        begins = lines.offset
        lines.new_record()
        record = _next_record(lines, reader)
        if record is None:
            return
        if isinstance(record, BadRow):
            yield record
        elif record:
            yield _row(path, names, record, lines.begins, begins)


def reread_csv_row(
    path: str, chunks: Iterator[bytes], place: Iterator[bytes], delimiter: str | None = None
) -> RawRow | None:
    """The row that begins where the chunks of `place` do; `chunks` are those of the whole file, for its header."""
    whole = CsvLines(path, chunks, 0)
    header = _header(path, whole, delimiter)
    if header is None:
        return None
    names, how = header
    lines = CsvLines(path, place, 0, like=whole)
    record = _next_record(lines, csv.reader(lines, **how))
    row = _row(path, names, record, 1, 0) if isinstance(record, list) else None
    return row if isinstance(row, RawRow) else None


def _row(path: str, names: list[str], record: list[str], place: int, offset: int) -> RawRow | BadRow:
    if record == names:
        return BadRow(Where(path, place), "the header again", HEADER_AGAIN)
    if len(record) != len(names):
        words = f"{len(record)} cells, but the header names {len(names)} columns"
        return BadRow(Where(path, place), words, QUOTES, excerpt=record[0][:40])
    pairs = zip(names, record, strict=True)
    value = {name: cell for name, cell in pairs if name}  # pandas leaves its index without a name
    text = msgspec.json.encode(value)
    return RawRow(place, offset, text) if len(text) <= LONGEST else BadRow(Where(path, place), TOO_LONG, QUOTES)


def _header(path: str, lines: CsvLines, delimiter: str | None) -> tuple[list[str], dict[str, Any]] | None:
    """The names of the columns, and how what follows is to be read; nothing where the file is blank."""
    first = _first_line(lines)
    if first is not None and (said := SEPARATOR.fullmatch(first.rstrip("\r\n"))):
        delimiter = said[1]
        lines.new_record()
        first = _first_line(lines)
    if first is None:
        return None
    how: dict[str, Any] = {"delimiter": delimiter or _delimiter(first), "strict": True}
    names = _next_record(lines, csv.reader(chain([first], lines), **how)) or []
    if isinstance(names, BadRow):
        raise names.error()
    named = [name for name in names if name]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice:
        raise BadRow(Where(path, lines.begins), f"two columns of the header have the name {twice!r}").error()
    return names, how


def _first_line(lines: CsvLines) -> str | None:
    """The next line that is not blank."""
    first = next((line for line in _records(lines) if line.strip() or lines.fault), None)
    if lines.fault:
        raise lines.fault.error()
    return first


def _records(lines: CsvLines) -> Iterator[str]:
    for line in lines:
        yield line
        lines.new_record()


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=lambda sign: _num_columns(header, sign))


def _num_columns(header: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=delimiter), []))
    except csv.Error:  # too long a cell, which reading it will say too
        return 0


def _next_record(lines: CsvLines, reader: Any) -> list[str] | BadRow | None:
    """The next record; an empty one for a blank line."""
    where = Where(lines.path, lines.begins)
    try:
        record: list[str] | None = next(reader, None)
    except csv.Error as error:
        reason = str(error).partition(" - ")[0]  # what follows is advice for programmers
        if reason.startswith(("unexpected end", "field larger")):
            lines.back()
            reason = (
                "a quote that is never closed" if reason.startswith("un") else f"a cell {TOO_LONG}, or an open quote"
            )
        return lines.fault or BadRow(where, f"not CSV ({reason})", QUOTES)
    return lines.fault or record
