"""Rows of a source in blocks: cut out of the files by one process, parsed wherever there is a core for it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftui.errors import DataError

from . import csv_rows, hub_dataset, json_array, parquet
from . import plain_text as texts
from .encodings import utf8_chunks
from .folders import first_names, kinds_of_files
from .hub_dataset import HubRows
from .json_row import parse_row
from .jsonl import jsonl_rows
from .raw_rows import BadRow, RawRow, Row, Unit, kind_of_value
from .reread import reread_text
from .streams import TABLES, kind_of, open_stream, printable

__all__ = ["BadRow", "Place", "RowBlock", "parse_block", "read_blocks", "reread_row"]

Place = Path | HubRows
SIZE = 512
LARGE = 8 << 20  # bytes of text after which a block is full, however few rows it has
LOOKED_AT = 64  # rows of a file that tell the kinds of its columns


@dataclass(frozen=True)
class RowBlock:
    """Up to 512 rows that stand together in one file, cut out but not parsed.

    `file` is the number of the place among those of the source. `places` are line or row numbers from 1, `offsets` the
    byte at which each row begins in the unpacked file (-1 where that means nothing), `texts` the rows as JSON in UTF-8,
    `lines` and `columns` where they begin, where that is not their place. `bad` are the rows that the cutting itself
    refused; they are not in the other lists. `kinds` are those of `Row`.
    """

    file: int
    path: str
    unit: Unit
    places: list[int]
    offsets: list[int]
    texts: list[bytes]
    bad: list[BadRow] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)

    def first(self, number: int) -> "RowBlock":
        """So many of its rows, without those that the cutting refused."""
        return replace(
            self, places=self.places[:number], offsets=self.offsets[:number], texts=self.texts[:number],
            lines=self.lines[:number], columns=self.columns[:number], bad=[],
        )  # fmt: skip


def read_blocks(places: Sequence[Place], *, encoding: str | None = None, size: int = SIZE) -> Iterator[RowBlock]:
    """All rows of the places, one after another, in memory for a few rows however large the files are.

    Raises:
        DataError: a file is missing, damaged, of an unknown kind, or in another encoding, or there is no row in any.
            What is wrong with single rows is in the blocks.
    """
    has_some = False
    for number, place in enumerate(places):
        path, unit = printable(place), unit_of(place)
        kinds: dict[str, dict[str, int]] | None = None
        for group in _batches(_raw_rows(place, encoding), size):
            block = _block(number, path, unit, group, kinds or {})
            if kinds is None:
                kinds = _column_kinds(block)
                block.kinds.update(kinds)
            has_some = True
            yield block
    if not has_some:
        raise DataError(f"There are no rows in {first_names(places)}.", hint="Check data.train and data.eval.")


def unit_of(place: Place) -> Unit:
    """What rows are counted in: where a file has lines that people see, those."""
    return "row" if isinstance(place, HubRows) or kind_of(place) in (".json", *TABLES) else "line"


def _block(
    number: int, path: str, unit: Unit, group: list[RawRow | BadRow], kinds: dict[str, dict[str, int]]
) -> RowBlock:
    cuts = [one for one in group if isinstance(one, RawRow)]
    return RowBlock(
        number,
        path,
        unit,
        [cut.place for cut in cuts],
        [cut.offset for cut in cuts],
        [cut.text for cut in cuts],
        [one for one in group if isinstance(one, BadRow)],
        [cut.line for cut in cuts if cut.line],
        [cut.column for cut in cuts if cut.line],
        kinds,
    )


def _batches(cuts: Iterable[RawRow | BadRow], size: int) -> Iterator[list[RawRow | BadRow]]:
    """What could be read before a file turned out to be damaged comes first."""
    group: list[RawRow | BadRow] = []
    num_bytes = 0
    try:
        for one in cuts:
            group.append(one)
            num_bytes += len(one.text) if isinstance(one, RawRow) else 0
            if len(group) >= size or num_bytes >= LARGE:
                yield group
                group, num_bytes = [], 0
    except DataError:
        if group:
            yield group
        raise
    if group:
        yield group


def _raw_rows(place: Place, encoding: str | None) -> Iterator[RawRow | BadRow]:
    if isinstance(place, HubRows):
        yield from hub_dataset.hub_rows(place)
        return
    kind, path = kind_of(place), printable(place)
    if kind is None:
        raise DataError(f"{path}: unknown kind of file.", hint=f"Rows are read from {kinds_of_files()}.")
    with open_stream(place) as stream:
        if kind in TABLES:
            yield from parquet.table_rows(place, stream)
            return
        offset, chunks = utf8_chunks(path, stream, encoding)
        match kind:
            case ".jsonl":
                yield from jsonl_rows(path, chunks, offset)
            case ".json":
                yield from _json_rows(place, chunks, offset, encoding)
            case ".csv" | ".tsv":
                yield from csv_rows.csv_rows(path, chunks, offset, "\t" if kind == ".tsv" else None)
            case _:
                yield from texts.text_rows(path, chunks, offset)


def _json_rows(path: Path, chunks: Iterator[bytes], offset: int, encoding: str | None) -> Iterator[RawRow | BadRow]:
    try:
        is_done = yield from json_array.json_rows(printable(path), chunks, offset)
        if not is_done:
            with open_stream(path) as stream:
                offset, chunks = utf8_chunks(printable(path), stream, encoding)
                yield from json_array.rows_in_object(printable(path), chunks, offset)
    except json_array.EndlessNestingError:
        most = json_array.MOST_OPEN
        raise DataError(
            f"{printable(path)} holds a value nested more than {most:,} levels deep: no row is.", hint=json_array.SHAPE
        ) from None


def _column_kinds(block: RowBlock) -> dict[str, dict[str, int]]:
    kinds: dict[str, dict[str, int]] = {}
    for row in parse_block(block.first(LOOKED_AT)):
        if isinstance(row, Row):
            for key, value in row.value.items():
                kinds.setdefault(key, {}).setdefault(kind_of_value(value), row.place)
    return kinds


def parse_block(block: RowBlock) -> list[Row | BadRow]:
    """The rows, or what is wrong with them, in the order of the file; those that the cutting refused among them."""
    path, unit = Path(block.path), block.unit
    lines, columns = block.lines or [0] * len(block.texts), block.columns or [1] * len(block.texts)
    rows: list[Row | BadRow] = []
    for place, offset, text, line, column in zip(block.places, block.offsets, block.texts, lines, columns, strict=True):
        value = parse_row(text, path, place, unit, offset, line)
        if isinstance(value, BadRow):
            rows.append(value.behind(line, column))
        else:
            rows.append(Row(path, place, value, unit, block.kinds))
    if block.bad:
        rows += block.bad
        rows.sort(key=_place)
    return rows


def _place(row: Row | BadRow) -> int:
    return row.place if isinstance(row, Row) else row.where.number


def reread_row(place: Place, number: int, offset: int, *, encoding: str | None = None) -> tuple[Row, str]:
    """One row again, and its text as it stands in the file (rows of tables: as JSON), by what its block says of it.

    Raises:
        DataError: the file has changed since: there is no such row any more.
    """
    text = reread_text(place, number, offset, encoding)
    if text is not None:
        (row,) = parse_block(RowBlock(0, printable(place), unit_of(place), [number], [offset], [text]))
        if isinstance(row, Row):
            return row, text.decode()
    raise DataError(
        f"{printable(place)} has changed: there is no {unit_of(place)} {number} any more.", hint="Start again."
    )
