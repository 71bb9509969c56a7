"""Lines of JSON cut out of a file: at LF only, for rows hold U+2028; no more is held than the longest line."""

from collections.abc import Iterator

from ftui.dataset.report import RowLocation

from .encodings import BOM, Utf8
from .raw_rows import BadRow, RawRow

LONGEST = 10_000_000
"""Bytes of a row. Longer ones are a fault: no model trains on a row of two million tokens, and memory is finite."""
TOO_LONG = f"longer than {LONGEST // 1_000_000} MB"
CUT_IT = "Cut it into several rows. Is there a line end missing?"


def jsonl_rows(path: str, chunks: Iterator[bytes], offset: int) -> Iterator[RawRow | BadRow]:
    """Every line that is not blank. `offset` is the byte of the file at which the chunks begin.

    A mark of UTF-8 (BOM) at the beginning of a line, as `cat` leaves one between files, is no part of it.
    """
    number, rest, utf8 = 0, b"", Utf8(path)
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        end = data.rfind(b"\n") + 1
        yield from _whole_lines(path, data[:end], number, offset, utf8)
        number, offset, rest = number + data.count(b"\n", 0, end), offset + end, data[end:]
        if len(rest) > LONGEST:
            number, offset = number + 1, offset + len(rest)
            yield BadRow(RowLocation(path, number), TOO_LONG, CUT_IT)
            skipped, rest = _past_line_end(chunks)
            offset += skipped
    yield from _whole_lines(path, rest, number, offset, utf8)


def _whole_lines(path: str, data: bytes, number: int, offset: int, utf8: Utf8) -> Iterator[RawRow | BadRow]:
    if not data or data.isspace():  # gigabytes of line ends may lie in 100 KB
        return
    is_utf8 = utf8.holds(data)
    start = 0
    for line in data.split(b"\n"):
        number += 1
        if line.startswith(BOM):
            start, line = start + len(BOM), line.removeprefix(BOM)
        if len(line) > LONGEST:
            yield BadRow(RowLocation(path, number), TOO_LONG, CUT_IT)
        elif line and not line.isspace():
            bad = None if is_utf8 else utf8.fault(RowLocation(path, number), line, offset + start, number, data[start:])
            yield bad or RawRow(number, offset + start, line)
        start += len(line) + 1


def _past_line_end(chunks: Iterator[bytes]) -> tuple[int, bytes]:
    """The bytes up to the next line end and with it, which are thrown away, and what was read behind it."""
    skipped = 0
    for chunk in chunks:
        end = chunk.find(b"\n") + 1
        if end:
            return skipped + end, chunk[end:]
        skipped += len(chunk)
    return skipped, b""
