"""Rows out of Parquet and Arrow files, a batch at a time, as JSON."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ftui.dataset.report import RowLocation
from ftui.errors import DataError

from .jsonl import CUT_IT, LONGEST, TOO_LONG
from .raw_rows import BadRow, RawRow
from .streams import kind_of, printable

BATCH = 512  # rows in memory at once; fewer where they are long
BATCH_BYTES = 2 << 20
POINTED_AT = 64  # bytes of a value in its file
BUFFER = 64 << 10  # bytes of a column that are read at once where one row is wanted
SHARED_BYTES = 24 << 20  # of values that stand in the file once, as often as the rows of a batch may hold them
MEDIA_CELL = {"bytes": "", "path": ""}  # stands for a picture or sound, which nobody reads
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def table_rows(path: Path, stream: BinaryIO, first: int = 1) -> Iterator[RawRow | BadRow]:
    """The rows of a Parquet or Arrow file from the `first` on.

    Of a packed Parquet file a copy is made in the temporary folder, for it is read from its end.

    Raises:
        DataError: it is damaged, or has two columns of one name.
    """
    import pyarrow  # 0.1 s, and few need it

    is_arrow = kind_of(path) == ".arrow"
    try:
        for before, batch in _arrow_batches(path, stream) if is_arrow else _parquet_batches(path, stream, first):
            if before + batch.num_rows >= first:
                left_out = max(0, first - 1 - before)
                yield from rows_of_batch(printable(path), batch.slice(left_out), before + left_out)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        words, kind = " ".join(str(error).split()), "Arrow" if is_arrow else "Parquet"
        hint = "Copy or download it again."
        raise DataError(f"{printable(path)} is damaged or no {kind} file: {words}.", hint=hint) from error


def _arrow_batches(path: Path, stream: Any) -> Iterator[tuple[int, Any]]:
    """Batches of up to 512 rows and the number of rows before each, of a stream (`save_to_disk` has it) or a file."""
    from pyarrow import ipc

    head = stream.peek(6)[:6]
    if not head:
        return  # an empty file has no rows, whatever its kind
    is_file = head == b"ARROW1"
    if not is_file and path.suffix.lower() == ".arrow":
        _refuse_cut(path)
    reader = ipc.open_file(stream) if is_file else ipc.open_stream(stream)
    _refuse_same_names(path, reader.schema)
    before = 0
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
        for start in range(0, batch.num_rows, BATCH):
            yield before + start, batch.slice(start, BATCH)
        before += batch.num_rows


def _refuse_cut(path: Path) -> None:
    """pyarrow takes a stream that was cut between two batches for whole. Raises `OSError`."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(END_OF_STREAM)))
        if file.read() != END_OF_STREAM:
            raise OSError("it ends in the middle")


def _parquet_batches(path: Path, stream: BinaryIO, first: int) -> Iterator[tuple[int, Any]]:
    """Batches and the number of rows before each; groups of rows that end before the `first` row are passed over."""
    import pyarrow.parquet

    with tempfile.TemporaryFile() if path.suffix.lower() != ".parquet" else path.open("rb") as file:
        if path.suffix.lower() != ".parquet":
            shutil.copyfileobj(stream, file)
        if not file.seek(0, os.SEEK_END):
            return  # an empty file has no rows, whatever its kind
        file.seek(0)
        metadata = pyarrow.parquet.read_metadata(file)
        _refuse_same_names(path, metadata.schema.to_arrow_schema())
        before, groups = _groups(metadata, first)
        for group in groups:
            _try_columns(file, metadata, group)
            table = pyarrow.parquet.ParquetFile(
                file, metadata=metadata, pre_buffer=False, page_checksum_verification=True,
                read_dictionary=_pointed_at(metadata, group),
            )  # fmt: skip
            most = _batch_size(file, metadata, group)
            for batch in table.iter_batches(batch_size=most, row_groups=[group]):
                yield before, batch
                before += batch.num_rows


def _first_row(file: BinaryIO, metadata: Any, group: int, text: str | None = None) -> Any:
    """The first row of a group, of one column of text with its dictionary or of all as they are; `None` without rows.

    Without a buffer pyarrow would read the whole group for it.
    """
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(
        file, metadata=metadata, pre_buffer=False, buffer_size=BUFFER, read_dictionary=text and [text]
    )
    columns = None if text is None else [text]
    return next(table.iter_batches(batch_size=1, row_groups=[group], columns=columns), None)


def _try_columns(file: BinaryIO, metadata: Any, group: int) -> None:
    """Read a row of a group, which raises where a column is damaged: to ask pyarrow for the size of one that is ends
    the process."""
    _first_row(file, metadata, group)


def _text_chunks(metadata: Any, group: int) -> Iterator[tuple[str, Any]]:
    """The columns of text in a group of rows, by the names that the schema has for them."""
    for number, column in enumerate(map(metadata.schema.column, range(len(metadata.schema)))):
        if column.physical_type == "BYTE_ARRAY":
            yield column.path, metadata.row_group(group).column(number)


def _pointed_at(metadata: Any, group: int) -> list[str]:
    """The columns whose values may stand in their file once and be pointed at: a file of 50 KB may hold one of 10 MB a
    million times, and no size in it says so. They are left as they stand, which takes 2 ms/MB more.

    Only where a value takes less than `POINTED_AT` bytes of the file: what is left as it stands is held for all rows of
    a group (350 MiB for 70 MB of long texts, in place of less than 90). Of others fewer are read at once.
    """
    chunks = _text_chunks(metadata, group)
    return [path for path, chunk in chunks if chunk.total_uncompressed_size < POINTED_AT * chunk.num_values]


def _dictionary_bytes(file: BinaryIO, chunk: Any) -> int:
    """Bytes of the values of a column that any number of its rows may point at: the size of its dictionary page.

    It is the second number of the page's header, in Thrift's compact protocol (parquet.thrift, PageHeader).
    """
    if not chunk.has_dictionary_page:
        return 0
    file.seek(max(0, chunk.dictionary_page_offset))
    numbers = [0, 0]
    for place in range(2):
        if file.read(1) != b"\x15":  # the next field, an i32
            return int(chunk.total_uncompressed_size)
        for shift in range(0, 35, 7):
            (byte,) = file.read(1) or b"\0"
            numbers[place] |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
    return numbers[1] >> 1  # zigzag of a number that is not negative


def _shared_bytes(file: BinaryIO, metadata: Any, group: int) -> int:
    """Bytes that a row of a group takes where all that it points at in dictionaries is as long as their longest value.

    Columns are left out whose whole dictionary is too small to count.
    """
    total, num_rows = 0, max(1, metadata.row_group(group).num_rows)
    for path, chunk in _text_chunks(metadata, group):
        page = _dictionary_bytes(file, chunk)
        if page > SHARED_BYTES // BATCH:
            row = _first_row(file, metadata, group, path)
            longest = _longest_shared(row.column(0)) if row else 0
            longest = longest or page  # a row whose list is empty brings no dictionary
            total += longest * max(1, -(-chunk.num_values // num_rows))
    return total


def _groups(metadata: Any, first: int) -> tuple[int, list[int]]:
    """The groups of rows that do not end before the `first` row, and the number of rows before them."""
    before = 0
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        if before + num_rows >= first:
            return before, list(range(group, metadata.num_row_groups))
        before += num_rows
    return before, []


def _batch_size(file: BinaryIO, metadata: Any, group: int) -> int:
    """How many rows of a group are read at once."""
    rows = metadata.row_group(group)
    shared = _shared_bytes(file, metadata, group)
    fitting = BATCH_BYTES // max(1, rows.total_byte_size // max(1, rows.num_rows))
    return max(1, min(BATCH, int(fitting), SHARED_BYTES // max(1, shared)))


def _refuse_same_names(path: Path, schema: Any) -> None:
    names = schema.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"{printable(path)}: two columns have the name {twice!r}.", hint="Write it again with one of them renamed."
        )


def _is_media(kind: Any) -> bool:
    """A picture or sound is a struct of `bytes` and `path` wherever the hub's data sets are written as tables."""
    import pyarrow

    if pyarrow.types.is_list(kind):
        return _is_media(kind.value_type)
    return pyarrow.types.is_struct(kind) and {part.name for part in kind} == {"bytes", "path"}


class _Unreadable(str):
    """Why a cell has no value."""


def rows_of_batch(path: str, batch: Any, before: int) -> Iterator[RawRow | BadRow]:
    """The rows of a batch of pyarrow as JSON; `before` rows of the file stand before it."""
    longest = sum(_longest_shared(column) for column in batch.columns)
    size = max(1, LONGEST // max(1, longest))
    for start in range(0, batch.num_rows, size):
        yield from _rows_of_piece(path, batch.slice(start, size), before + start)


def _longest_shared(column: Any) -> int:
    """Bytes of the longest value that rows of a column share; each row that has it will be a copy of it."""
    import pyarrow
    from pyarrow import compute

    if pyarrow.types.is_dictionary(column.type):
        kind = column.type.value_type
        is_long = any(check(kind) for check in (
            pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_binary,
            pyarrow.types.is_large_binary,
        ))  # fmt: skip
        return int(compute.max(compute.binary_length(column.dictionary)).as_py() or 0) if is_long else 0
    if pyarrow.types.is_struct(column.type):
        return sum(map(_longest_shared, column.flatten()))
    if pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
        return _longest_shared(column.flatten())
    return 0


def _rows_of_piece(path: str, batch: Any, before: int) -> Iterator[RawRow | BadRow]:
    names = batch.schema.names
    columns = [_values(batch.column(number)) for number in range(len(names))]
    for number, values in enumerate(zip(*columns, strict=True), start=before + 1):
        where = RowLocation(path, number, "row")
        wrong = next((n for n, value in enumerate(values) if isinstance(value, _Unreadable)), None)
        if wrong is not None:
            yield BadRow(where, f"column {names[wrong]!r} cannot be read ({values[wrong]})", "Write the file again.")
            continue
        yield table_row(where, dict(zip(names, values, strict=True)))


def table_row(where: RowLocation, value: dict[str, Any]) -> RawRow | BadRow:
    """A row of a table as JSON."""
    text = _encode({key: without_nulls(inner) for key, inner in value.items()}).encode()
    return RawRow(where.number, -1, text) if len(text) <= LONGEST else BadRow(where, TOO_LONG, CUT_IT)


def _values(column: Any) -> list[Any]:
    """As Python's values; those of time as text, for few of them fit Python's types."""
    import pyarrow

    if _is_media(column.type):
        lengths = column.value_lengths() if pyarrow.types.is_list(column.type) else column.is_valid()
        return [MEDIA_CELL if there else None for there in lengths.to_pylist()]
    if pyarrow.types.is_temporal(column.type):
        column = column.cast(pyarrow.string())
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (UnicodeDecodeError, ValueError, OverflowError):
        return [_value(cell) for cell in column]


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        return _Unreadable(error)


def _plain(value: Any) -> Any:
    """What JSON has no word for. Bytes that are text come from old writers, which did not say that they wrote text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"num_bytes": len(value)}
    return str(value)


_encode = json.JSONEncoder(ensure_ascii=False, default=_plain).encode


def without_nulls(value: Any) -> Any:
    """A table gives every struct all the keys that any of them has: those without a value are left out again.

    A message's content may be null and must be seen to be. A float that is no number is null: JSON has no word for it.
    """
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None or k == "content"}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
