"""Rows out of tables: CSV with quoted newlines, and Parquet a batch at a time."""

import csv
import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from ftui.engine.data.jsons import BOM, text_of
from ftui.engine.data.rows import Row
from ftui.errors import DataError

DELIMITERS = ",;\t"
QUOTES = "A cell with the delimiter or a line end in it needs quotes."
BATCH = 512  # rows of a Parquet file that are in memory at once
csv.field_size_limit(2**31 - 1)  # the default refuses cells of more than 128 KiB


def csv_rows(path: Path, stream: BinaryIO, delimiter: str | None = None) -> Iterator[Row]:
    """A header, then one row per record; a row's place is the line on which it begins.

    Without a `delimiter` it is the one of `,`, `;` and tab that cuts the header into the most columns.
    """
    lines = _texts(path, stream)
    before, first = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    if not first:
        return
    delimiter = delimiter or _delimiter(path, first, before)
    rest = (line for _, line in lines)
    reader = csv.reader(chain([first], rest), delimiter=delimiter, strict=True)
    header = _record(path, reader, before)
    named = [name for name in header or [] if name]
    if len(set(named)) != len(named):
        raise Row(path, before, {}).error("two columns of the header have one name")
    while header:
        begin = before + reader.line_num
        record = _record(path, reader, begin)
        if record is None:
            return
        if not record:
            continue
        if len(record) != len(header):
            words = f"{len(record)} cells, but the header names {len(header)} columns"
            raise Row(path, begin, {}).error(words, hint=QUOTES)
        pairs = zip(header, record, strict=True)
        yield Row(path, begin, {name: cell for name, cell in pairs if name})  # pandas leaves its index without a name


def _texts(path: Path, stream: BinaryIO) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_lines(stream), start=1):
        yield number, text_of(path, number, line.removeprefix(BOM) if number == 1 else line)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with the LF or CR LF that ends them; or CR, where the first one ends so (Excel's "CSV (Macintosh)").

    Elsewhere a CR within a line is left for the reader to refuse: half a cell must not become a row. A file without LF
    is held in memory as a whole.
    """
    first = next(stream, b"")
    with_cr = b"\r" in first.strip(b"\r\n")
    for line in chain([first], stream):
        yield from line.splitlines(keepends=True) if with_cr else [line]


def _delimiter(path: Path, header: str, line: int) -> str:
    columns = {sign: _record(path, csv.reader([header], delimiter=sign), line) or [] for sign in DELIMITERS}
    return max(DELIMITERS, key=lambda sign: len(columns[sign]))


def _record(path: Path, reader: Any, begin: int) -> list[str] | None:
    try:
        record: list[str] | None = next(reader, None)
        return record
    except csv.Error as error:
        reason = str(error).partition(" - ")[0]  # what follows is advice for programmers
        raise Row(path, begin, {}).error(f"not CSV ({reason})", hint=f"{QUOTES} A quote in it is doubled.") from error


def parquet_rows(path: Path, stream: BinaryIO) -> Iterator[Row]:
    """The rows of a Parquet file. Of a packed one a copy is made in the temporary folder: it is read from its end."""
    import pyarrow  # 0.1 s, and few need it
    import pyarrow.parquet

    with tempfile.TemporaryFile() if path.suffix.lower() != ".parquet" else path.open("rb") as file:
        if path.suffix.lower() != ".parquet":
            shutil.copyfileobj(stream, file)
        try:
            table = pyarrow.parquet.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
            number = 0
            for batch in table.iter_batches(batch_size=BATCH):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(path, number, {key: without_nulls(inner) for key, inner in value.items()}, "row")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} is damaged or no Parquet file: {error}.", hint="Copy or download it again."
            ) from error


def without_nulls(value: Any) -> Any:
    """A table gives every struct all the keys that any of them has: those without a value are left out again.

    A message's content may be null and must be seen to be.
    """
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None or k == "content"}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
