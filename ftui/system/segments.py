"""A file of lines that may grow for ever: what is full of it lies compressed beside it, and readers see one file.

    metrics.jsonl                                      the newest segment, which is appended to
    segments/metrics-000000000016777345.jsonl.gz ...   older ones, each by the byte of the whole at which it begins

A file that has been begun anew says in its first line at which byte of the whole it begins; offsets count the bytes of
the whole. The full segment is in place before the file is begun anew, in one move: a reader who holds the old file has
all of it, and one who finds the new file finds the segment. Every segment ends with a whole line.
"""

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ftui.system.files import make_private_folder, open_plain, open_private, read_plain, replace_file, write_all

HEAD = re.compile(rb'\{"kind":"segment","start":(\d{1,18})\}\n')
LONGEST_HEAD = 64  # bytes
SUFFIX = ".jsonl.gz"
LEVEL = 3  # of 16 MiB of steps: 0.14 s, to a quarter of their size; level 6 takes 0.34 s, to 22 %
PIECE = 1 << 20  # bytes
LONGEST_LINE = 4 << 20  # bytes; a record is a few hundred, one with samples a few thousand


class Segment(NamedTuple):
    """An older part of a file: the bytes from `start` to `end` of the whole, compressed in `path`."""

    path: Path
    start: int
    end: int


def segment_start(descriptor: int) -> int:
    """At which byte of the whole an open file begins: 0 but where it has been begun anew."""
    head = HEAD.match(os.pread(descriptor, LONGEST_HEAD, 0))
    return int(head[1]) if head else 0


def total_bytes(path: Path) -> int:
    """The bytes of the whole file; 0 where there is none.

    Raises:
        UnsafePathError: it is no plain file.
    """
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return 0
    try:
        return segment_start(descriptor) + os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def segments_before(path: Path, start: int) -> list[Segment]:
    """The older segments of a file that now begins at `start`, in their order."""
    try:
        names = os.listdir(_folder(path)) if start else []
    except (FileNotFoundError, NotADirectoryError):
        return []
    own = re.compile(rf"{re.escape(path.stem)}-(\d{{18}}){re.escape(SUFFIX)}")
    starts = sorted(first for name in names if (match := own.fullmatch(name)) and (first := int(match[1])) < start)
    return [Segment(_segment(path, a), a, b) for a, b in zip(starts, [*starts, start][1:], strict=True)]


def read_older(path: Path, offset: int, start: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines from `offset` of the whole file on, up to `start`, at which the file now begins.

    Each piece comes with the offset behind it; a segment that is missing or damaged gives one empty piece, and so do
    the bytes that no segment has. Raises `OSError`, also where something else stands in a segment's place.
    """
    for segment in segments_before(path, start):
        if segment.end <= offset:
            continue
        if segment.start > offset:
            yield segment.start, b""
        position = segment.start
        try:
            for piece in _unpack(segment):
                position += len(piece)
                if position > offset:
                    yield position, piece[max(0, offset - position + len(piece)) :]
        except (FileNotFoundError, DamagedSegmentError):
            yield segment.end, b""
        offset = segment.end
    if offset < start:
        yield start, b""


class DamagedSegmentError(ValueError):
    """A segment does not hold the lines that it should."""


def _unpack(segment: Segment) -> Iterator[bytes]:
    """Its lines, about a `PIECE` at a time: the compressed bytes are in memory, never all that is in them.

    Raises:
        DamagedSegmentError: it has other bytes than those from `start` to `end`.
        OSError: it cannot be read, or is no plain file.
    """
    packed, unpacker, rest = read_plain(segment.path), zlib.decompressobj(wbits=31), b""
    num_left = segment.end - segment.start
    while num_left:
        try:
            data = unpacker.decompress(packed, min(PIECE, num_left))
        except zlib.error as error:
            raise DamagedSegmentError(str(error)) from error
        if not data:
            break
        packed, num_left = unpacker.unconsumed_tail, num_left - len(data)
        whole, line_end, rest = (rest + data).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            break
        if line_end:
            yield whole + line_end
    if num_left or rest:
        raise DamagedSegmentError(f"{segment.path} ends too early")


def begin_anew(path: Path, descriptor: int, *, keep: int | None) -> int:
    """Compress what an open file holds, whose last line is whole, and begin it anew.

    `keep`: how many older segments stay; `None` for all of them.

    Returns the descriptor of the new file, opened to append, and closes the old one.

    Raises:
        OSError: the disk refused it. The file is as it was.
    """
    start, size = segment_start(descriptor), os.fstat(descriptor).st_size
    make_private_folder(_folder(path), inside=path.parent)
    replace_file(_segment(path, start), _compressed(descriptor, size), durable=True)
    new = _put_in_place(path, b'{"kind":"segment","start":%d}\n' % (start + size))
    os.close(descriptor)
    older = segments_before(path, start + size)
    for segment in older[: len(older) - min(keep, len(older))] if keep is not None else []:
        segment.path.unlink(missing_ok=True)
    return new


def _put_in_place(path: Path, head: bytes) -> int:
    """A new file at `path`, and its descriptor. Its folder is for the caller to sync."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = open_private(temporary, os.O_RDWR | os.O_APPEND | os.O_EXCL)
    try:
        write_all(descriptor, head)
        temporary.rename(path)
    except OSError:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return descriptor


def _compressed(descriptor: int, size: int) -> bytes:
    packer, pieces = zlib.compressobj(LEVEL, wbits=31), list[bytes]()
    for offset in range(0, size, PIECE):
        pieces.append(packer.compress(os.pread(descriptor, min(PIECE, size - offset), offset)))
    return b"".join([*pieces, packer.flush()])


def _folder(path: Path) -> Path:
    return path.parent / "segments"


def _segment(path: Path, start: int) -> Path:
    return _folder(path) / f"{path.stem}-{start:018}{SUFFIX}"
