"""The text of one row again, by the place that its block gave it: read from there, not from the file's beginning."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftui.dataset.report import RowLocation

from .csv_rows import reread_csv_row
from .encodings import utf8_chunks
from .hub_dataset import HubRows
from .json_array import EndOfFile, JsonWindow
from .jsonl import LONGEST
from .parquet import table_row, table_rows
from .plain_text import text_rows
from .raw_rows import RawRow
from .streams import CHUNK, PACKED, TABLES, kind_of, open_stream, printable


def reread_text(place: Path | HubRows, number: int, offset: int, encoding: str | None) -> bytes | None:
    """A row as JSON; `None` where there is none any more.

    Raises:
        DataError: the file cannot be read.
    """
    if isinstance(place, HubRows):
        if number > len(place.table):
            return None
        cut = table_row(RowLocation(printable(place), number, "row"), place.table[number - 1])
        return cut.text if isinstance(cut, RawRow) else None
    kind, path = kind_of(place), printable(place)
    if kind in TABLES:
        with open_stream(place) as stream:
            raw = next(iter(table_rows(place, stream, first=number)), None)
        return raw.text if isinstance(raw, RawRow) else None
    with _chunks_from(place, offset, encoding) as chunks:
        match kind:
            case ".jsonl":
                return _line(chunks)
            case ".json":
                return _value(chunks)
            case ".txt":
                raw = next(text_rows(path, chunks, offset), None)
            case _:
                with open_stream(place) as stream:
                    whole = utf8_chunks(path, stream, encoding)[1]
                    raw = reread_csv_row(path, whole, chunks, "\t" if kind == ".tsv" else None)
    return raw.text if isinstance(raw, RawRow) else None


@contextmanager
def _chunks_from(path: Path, offset: int, encoding: str | None) -> Iterator[Iterator[bytes]]:
    with open_stream(path) as stream:
        if encoding is None and path.suffix.lower() not in PACKED:
            stream.seek(offset)
            yield iter(lambda: stream.read(CHUNK), b"")
            return
        start, chunks = utf8_chunks(printable(path), stream, encoding)
        yield _behind(chunks, offset - start)


def _behind(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    for chunk in chunks:
        if num_bytes < len(chunk):
            yield chunk[num_bytes:]
        num_bytes = max(0, num_bytes - len(chunk))


def _line(chunks: Iterator[bytes]) -> bytes:
    raw = b""
    for chunk in chunks:
        raw += chunk
        if b"\n" in chunk or len(raw) > LONGEST:
            break
    return raw.partition(b"\n")[0]


def _value(chunks: Iterator[bytes]) -> bytes | None:
    window = JsonWindow(chunks, 0)
    try:
        return window.value() if window.sign() else None
    except EndOfFile:
        return None
