"""Rows out of CSV: any of the common delimiters, quoted line ends."""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from ftui.dataset.report import RowLocation
from ftui.profile.sections.row_forms import form_of

from .encoding_guess import SAMPLE
from .encodings import BOM, Utf8
from .jsonl import CUT_IT, LONGEST, TOO_LONG
from .raw_rows import BadRow, RawRow


class _CsvLine(NamedTuple):
    """`text` with its line end (of one that is too long, the beginning) has `size` bytes and begins in `data`."""

    text: bytes
    size: int
    data: bytes
    start: int


class CsvLines:
    """An iterator over lines of text with their line ends. `number` lines were given; the next begins at byte `offset`.

    A mark of UTF-8 (BOM) before a record, as `cat` leaves one between files, is no part of it.

    Lines end with LF or CR LF; or with CR, where the first one does (Excel's "CSV (Macintosh)"). Elsewhere a CR within
    a line is left for the reader to refuse: half a cell must not become a row. In the middle of a file nobody can tell:
    there they end as in the one that they are `like`.
    """

    def __init__(self, path: str, chunks: Iterator[bytes], offset: int, like: "CsvLines | None" = None) -> None:
        self.path = path
        self._utf8 = Utf8(path)
        self._end_with_cr: bool | None = like._end_with_cr if like else None
        self._cut = self._cut_out(chunks)
        self._given: list[_CsvLine] = []
        self._again: list[_CsvLine] = []
        self.number, self.offset, self.begins = 0, offset, 1
        self.fault: BadRow | None = None

    def new_record(self) -> None:
        """A record begins with the next line. From now on `fault` is what is wrong with the bytes of this one."""
        self._given, self.fault, self.begins = [], None, self.number + 1

    def back(self) -> None:
        """Goes back to the second line of the record."""
        others = self._given[1:]
        self._again += reversed(others)
        self.number -= len(others)
        self.offset -= sum(line.size for line in others)

    def __iter__(self) -> "CsvLines":
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._cut)
        self._given.append(line)
        self.number += 1
        begins, self.offset = self.offset, self.offset + line.size
        where = RowLocation(self.path, self.begins)
        text = line.text.removeprefix(BOM) if self.number == self.begins else line.text
        if line.size > LONGEST:
            self.fault = BadRow(where, TOO_LONG, CUT_IT, line=self.number)
            return ""
        try:
            return text.decode()
        except UnicodeDecodeError:
            sample = line.data[line.start : line.start + SAMPLE]
            self.fault = self.fault or self._utf8.fault(where, line.text, begins, self.number, sample)
            return line.text.decode(errors="replace")

    def _cut_out(self, chunks: Iterator[bytes]) -> Iterator[_CsvLine]:
        rest, dropped = b"", 0
        for chunk in chunks:
            data = rest + chunk if rest else chunk
            if self._end_with_cr is None:
                self._end_with_cr = b"\r" in data.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
            start = 0
            for text in data.splitlines(keepends=True) if self._end_with_cr else _with_ends(data):
                if start + len(text) == len(data) and not text.endswith(b"\n"):
                    break  # it, or its CR LF, may go on
                yield _CsvLine(text, dropped + len(text), data, start)
                start, dropped = start + len(text), 0
            rest = data[start:]
            if len(rest) > LONGEST:
                rest, dropped = rest[: LONGEST // 2], dropped + len(rest) - LONGEST // 2
        if rest:
            yield _CsvLine(rest, dropped + len(rest), rest, 0)


def _with_ends(data: bytes) -> Iterator[bytes]:
    *whole, rest = data.split(b"\n")
    for line in whole:
        yield line + b"\n"
    if rest:
        yield rest


PREAMBLE = 20  # lines that are looked at for the header
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
    line `sep=;`, as Excel reads it, says it itself. Titles and comments above the header are passed over.

    Raises:
        DataError: there is something wrong with the header.
    """
    head = next(chunks, b"")
    lines = CsvLines(path, chain([head], chunks), offset)
    header = _header(path, lines, delimiter, _count_preamble(head, delimiter))
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
    head = next(chunks, b"")
    whole = CsvLines(path, chain([head], chunks), 0)
    header = _header(path, whole, delimiter, _count_preamble(head, delimiter))
    if header is None:
        return None
    names, how = header
    lines = CsvLines(path, place, 0, like=whole)
    record = _next_record(lines, csv.reader(lines, **how))
    row = _row(path, names, record, 1, 0) if isinstance(record, list) else None
    return row if isinstance(row, RawRow) else None


def describe_preamble(path: str, chunks: Iterator[bytes], delimiter: str | None = None) -> str:
    """Which lines above the header are passed over, and where the header is; empty where it is the first line.

    Raises:
        DataError: there is something wrong with the header.
    """
    head = next(chunks, b"")
    num_above = _count_preamble(head, delimiter)
    lines = CsvLines(path, chain([head], chunks), 0)
    header = _header(path, lines, delimiter, num_above) if num_above else None
    if header is None:
        return ""
    last = lines.begins - 1
    passed_over = "line 1 is" if last == 1 else f"lines 1 to {last} are"
    return f"{passed_over} passed over; the header was found in line {last + 1}: {', '.join(filter(None, header[0]))}"


def _row(path: str, names: list[str], record: list[str], place: int, offset: int) -> RawRow | BadRow:
    if record == names:
        return BadRow(RowLocation(path, place), "the header again", HEADER_AGAIN)
    if len(record) != len(names):
        words = f"{len(record)} cells, but the header names {len(names)} columns"
        above = f"The header was taken to be {names[0]!r}: delete what stands above the real one. "
        hint = above + QUOTES if len(names) == 1 else QUOTES
        return BadRow(RowLocation(path, place), words, hint, excerpt=record[0][:40])
    pairs = zip(names, record, strict=True)
    value = {name: cell for name, cell in pairs if name}  # pandas leaves its index without a name
    text = msgspec.json.encode(value)
    return RawRow(place, offset, text) if len(text) <= LONGEST else BadRow(RowLocation(path, place), TOO_LONG, QUOTES)


def _count_preamble(head: bytes, delimiter: str | None) -> int:
    """The number of lines above the header: none, unless the first line is no header.

    A first line that is a comment, or has another number of cells than a later one with the columns of a known form, is
    none; nor is a title of one cell above lines that all have the same number of cells, two or more. Spreadsheets write
    a title with its empty cells (`Report,,`); a first cell that is empty is above pandas' index.
    """
    texts = [line.decode(errors="replace") for line in head.removeprefix(BOM).splitlines()[:PREAMBLE]]
    lines = [(number, text) for number, text in enumerate(texts) if text.strip()]
    if not lines or SEPARATOR.fullmatch(lines[0][1]):
        return 0
    cells = {number: _cells(text, delimiter) for number, text in lines}
    (first, title), *others = lines
    is_comment = title.lstrip(' \t"').startswith(("#", "//"))
    if form_of(cells[first]):
        return 0
    if len(cells[first]) > 1 and cells[first][0] and not any(cells[first][1:]):
        return next((number for number, _ in others if sum(map(bool, cells[number])) > 1), 0)
    if others and not is_comment and len(cells[first]) == len(cells[others[0][0]]) > 1:
        return 0
    for number, _ in others:
        if form_of(cells[number]) and (is_comment or len(cells[number]) not in (1, len(cells[first]))):
            return number
    body = [(number, text) for number, text in others if not (is_comment and text.lstrip().startswith(("#", "//")))]
    widths = {_num_columns(text, delimiter or _delimiter(body[0][1])) for _, text in body}
    is_table = (
        len(body) > (1 if is_comment else 2) and len(widths) == 1 and widths != {1} and widths != {len(cells[first])}
    )
    return body[0][0] if is_table and (is_comment or len(cells[first]) == 1) else 0


def _cells(line: str, delimiter: str | None) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter or _delimiter(line)), [])]
    except csv.Error:  # too long a cell, which reading it will say too
        return []


def _header(
    path: str, lines: CsvLines, delimiter: str | None, num_above: int
) -> tuple[list[str], dict[str, Any]] | None:
    """The names of the columns, and how what follows is to be read; nothing where the file is blank."""
    for _ in zip(range(num_above), _records(lines), strict=False):
        pass
    lines.new_record()
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
        raise BadRow(RowLocation(path, lines.begins), f"two columns of the header have the name {twice!r}").error()
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
    where = RowLocation(lines.path, lines.begins)
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
