"""Files as streams of bytes, whatever they are packed in: `.gz` and `.zst` are unpacked while they are read."""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import zstandard

from ftui.errors import DataError
from ftui.system.input_files import open_input

KINDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt")
TABLES = (".parquet", ".arrow")
"""Kinds that have neither lines nor a text encoding."""
PACKED = (".gz", ".zst")
CHUNK = 1 << 20
HEAD = 64  # bytes that tell what lies in the place of a file
FEWEST = 256
WINDOW = 1 << 31  # bytes that a frame may look back (`zstd --long=31`); without it 128 MiB, as `zstd` has it
_ARCHIVE = "Unpack it, and name the file of rows in it; a spreadsheet (.xlsx) is saved as CSV."
OTHER_FILES = (
    # first bytes of files that are often named like rows, what they are, the end their name needs, the way out
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "", _ARCHIVE),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "", _ARCHIVE),
    (b"\xfd7zXZ\0", "packed by xz", "", "Unpack it: xz -d FILE."),
    (b"BZh91AY&SY", "packed by bzip2", "", "Unpack it: bzip2 -d FILE."),
    (b"\x1f\x8b", "packed by gzip", ".gz", "Rename it: its name has to end in .gz."),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", ".zst", "Rename it: its name has to end in .zst."),
    (b"PAR1", "a Parquet file", ".parquet", "Rename it: its name has to end in .parquet."),
    (b"ARROW1", "an Arrow file", ".arrow", "Rename it: its name has to end in .arrow."),
    (b"%PDF-", "a PDF document", "", "Extract its text first."),
    (b"SQLite format 3\0", "a SQLite database", "", "Export a table of it as CSV."),
)
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


def printable(place: object) -> str:
    """A file's name for messages and records: bytes in it that are no UTF-8 become `\\xe9`."""
    return str(place).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def kind_of(path: Path) -> str | None:
    """The kind of rows in a file by its name (`.jsonl` for `rows.jsonl.gz`); `None` where it is no known one."""
    bare = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = bare.suffix.lower()
    return kind if kind in KINDS else None


@contextmanager
def open_stream(path: Path) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file.

    Raises:
        DataError: it cannot be read, or what it is packed in is damaged (also later, while it is read).
    """
    try:
        with open_input(path) as packed:
            _refuse_stand_in(path, packed.peek(HEAD)[:HEAD])
            yield _unpack(path, packed)
    except DAMAGED as error:
        raise DataError(
            f"{printable(path)}: the compressed file is damaged ({error}).", hint="Copy or download it again."
        ) from error
    except OSError as error:
        raise DataError(
            f"{printable(path)} cannot be read: {error.strerror or error}.", hint="Check data.train and data.eval."
        ) from error


def _refuse_stand_in(path: Path, head: bytes) -> None:
    """Raises `DataError` for what lies in the place of rows that were never downloaded."""
    if head.startswith(b"version https://git-lfs.github.com/"):
        raise DataError(
            f"{printable(path)} is a pointer of Git LFS, not the file itself.",
            hint="`git lfs pull` in its folder fetches it; or download it with `hf download`.",
        )
    for mark, what, end, hint in OTHER_FILES:
        if head.startswith(mark) and end not in (path.suffix.lower(), kind_of(path)):
            raise DataError(f"{printable(path)} is {what}, not what its name says.", hint=hint)
    if kind_of(path) != ".txt" and re.match(rb"\s*<(!doctype html|html)\b", head, re.IGNORECASE):
        raise DataError(
            f"{printable(path)} is a web page, not a file of rows.",
            hint="Download the file itself: on the hub, its address has /resolve/ in place of /blob/.",
        )


def _unpack(path: Path, packed: IO[bytes]) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=packed))
    if path.suffix.lower() == ".zst":
        return cast(BinaryIO, io.BufferedReader(_Zstd(packed), CHUNK))
    return cast(BinaryIO, packed)


class _Zstd(io.RawIOBase):
    """All frames of a zst file one after another. (zstandard's own reader takes a file cut in mid-frame for whole.)"""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._frame = _frame()
        self._in_frame = False
        self._rest = b""  # packed bytes after the frame that ended last
        self._ready = memoryview(b"")
        self._bite = FEWEST  # packed bytes unpacked at once: four of them may hold 128 KiB

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            packed, self._rest = self._rest[: self._bite], self._rest[self._bite :]
            packed = packed or self._packed.read(self._bite)
            if not packed:
                if self._in_frame:
                    raise EOFError("it ends in the middle")
                return 0
            self._unpack(packed)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _unpack(self, packed: bytes) -> None:
        self._ready = memoryview(self._frame.decompress(packed))
        self._bite = min(2 * self._bite, CHUNK) if len(self._ready) < CHUNK // 2 else max(self._bite // 2, FEWEST)
        self._in_frame = not self._frame.eof
        if self._frame.eof:
            self._rest = self._frame.unused_data + self._rest
            self._frame = _frame()


def _frame() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
