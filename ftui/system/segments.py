"""A file of lines that may grow for ever: what is full of it lies compressed beside it, and readers see one file.

    metrics.jsonl                                      the newest segment, which is appended to
    segments/metrics-000000000016777345.jsonl.gz ...   older ones, each by the byte of the whole at which it begins

A file that has been begun anew says in its first line at which byte of the whole it begins; offsets count the bytes of
the whole. The full segment is in place before the file is begun anew, in one move: a reader who holds the old file has
all of it, and one who finds the new file finds the segment. Every segment ends with a whole line.

Segments at or after the byte at which the file itself begins are no part of the whole: they are what a crash left
between the two moves, copies of what the file holds, or a power loss has emptied the file.
"""

import contextlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ftui.system.files import make_private_folder, open_plain, open_private, replace_file, sync_open, write_all

HEAD = re.compile(rb'\{"kind":"segment","start":(\d{1,18})\}\n')
LONGEST_HEAD = 64  # bytes
SUFFIX = ".jsonl.gz"
LEVEL = 3  # of 16 MiB of steps: 0.14 s, to a quarter of their size; level 6 takes 0.34 s, to 22 %
PIECE = 1 << 20  # bytes
PACKED_PIECE = 1 << 16  # bytes
LONGEST_SEGMENT = 16 << 20  # bytes, but for the line that ends there
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
    starts = [first for first in _starts(path) if first < start] if start else []
    return [Segment(_segment(path, a), a, b) for a, b in zip(starts, [*starts, start][1:], strict=True)]


def _starts(path: Path) -> list[int]:
    """The first bytes of all segments beside a file, in their order."""
    try:
        names = os.listdir(_folder(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    own = re.compile(rf"{re.escape(path.stem)}-(\d{{18}}){re.escape(SUFFIX)}")
    return sorted(int(match[1]) for name in names if (match := own.fullmatch(name)))


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
    """Its lines, about a `PIECE` at a time.

    Raises:
        DamagedSegmentError: it has other bytes than those from `start` to `end`.
        OSError: it cannot be read, or is no plain file.
    """
    num_left, rest = segment.end - segment.start, b""
    for data in _unpack_all(segment.path):
        data = data[:num_left]
        num_left -= len(data)
        whole, line_end, rest = (rest + data).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            break
        if line_end:
            yield whole + line_end
        if not num_left:
            break
    if num_left or rest:
        raise DamagedSegmentError(f"{segment.path} ends too early")


def _unpack_all(path: Path) -> Iterator[bytes]:
    """What a compressed file holds, at most a `PIECE` at a time: never all of it, packed or not, is in memory.

    One that is cut off just ends. Raises as `_unpack`.
    """
    unpacker = zlib.decompressobj(wbits=31)
    with open(open_plain(path), "rb", buffering=0) as file:
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or file.read(PACKED_PIECE)
            try:
                data = unpacker.decompress(packed, PIECE)
            except zlib.error as error:
                raise DamagedSegmentError(f"{path}: {error}") from error
            if data:
                yield data
            elif not packed:
                return


def finish_move(path: Path, descriptor: int) -> int:
    """Begin anew an open file of which the segments have all already: a crash came between, or has emptied it.

    Returns the descriptor of the new file and closes the old one, or returns that where there is nothing to do.

    Raises:
        OSError: the disk refused it. The file is as it was.
    """
    is_copied, end = _compare(path, descriptor)
    start, size = segment_start(descriptor), os.fstat(descriptor).st_size
    if end == start or (size and not (is_copied and start + size <= end)):
        return descriptor
    return _put_in_place(path, end, descriptor)


def begin_anew(path: Path, descriptor: int, *, keep: int | None, longest: int = LONGEST_SEGMENT) -> int:
    """Compress what an open file holds, whose last line is whole, and begin it anew.

    `longest`: the bytes of a segment, but for the line that ends there; a file that has more makes several.
    `keep`: how many older segments stay; `None` for all of them. A segment that holds something else than the file is
    never overwritten: then the file's lines follow it in the whole.

    Returns the descriptor of the new file, opened to append, and closes the old one.

    Raises:
        OSError: the disk refused it. The file is as it was.
    """
    is_copied, behind = _compare(path, descriptor)
    start, size = segment_start(descriptor) if is_copied else behind, os.fstat(descriptor).st_size
    make_private_folder(_folder(path), inside=path.parent)
    _remove(path, [first for first in _starts(path) if first >= start])
    ends = list(_line_ends(descriptor, size, longest))
    try:
        for begin, end in zip([0, *ends], ends, strict=False):
            replace_file(_segment(path, start + begin), _compressed(descriptor, begin, end), durable=True)
    except OSError:  # on a full disk they would take the space of the next try
        _remove(path, [start + begin for begin in (0, *ends)])
        raise
    new = _put_in_place(path, start + size, descriptor)
    if keep is not None:
        with contextlib.suppress(OSError):  # the file is another already; they are removed the next time
            older = [segment.start for segment in segments_before(path, start + size)]
            _remove(path, older[: len(older) - min(keep, len(older))])
    return new


def _compare(path: Path, descriptor: int) -> tuple[bool, int]:
    """What the segments are that lie at or after the byte at which an open file begins.

    Returns whether they are one copy of what it holds, as far as both reach (also where there are none), and the byte
    of the whole behind the last of them. A damaged one reaches as far as it can be read.
    """
    start, size = segment_start(descriptor), os.fstat(descriptor).st_size
    is_copied, end = True, start
    for first in _starts(path):
        if first < start:
            continue
        is_copied, end = is_copied and first == end, first
        with contextlib.suppress(DamagedSegmentError):
            for data in _unpack_all(_segment(path, first)):
                held = data[: max(0, start + size - end)]
                is_copied = is_copied and os.pread(descriptor, len(held), end - start) == held
                end += len(data)
        end = max(end, first + 1)
    return is_copied, end


def _remove(path: Path, starts: list[int]) -> None:
    """The last one first, so that a crash leaves no hole between those that stay."""
    for first in reversed(starts):
        _segment(path, first).unlink(missing_ok=True)


def _line_ends(descriptor: int, size: int, longest: int) -> Iterator[int]:
    """Where a file of whole lines is cut: behind the first line end that `longest` bytes reach, and so on."""
    end = 0
    while end < size:
        end, newline = min(end + max(1, longest), size) - 1, -1
        while newline < 0 and end < size:
            piece = os.pread(descriptor, PACKED_PIECE, end)
            newline = piece.find(b"\n")
            end += newline + 1 or len(piece)
        yield end


def _put_in_place(path: Path, start: int, old: int) -> int:
    """A new file at `path` that begins at byte `start` of the whole; returns its descriptor and closes the old one.

    Its folder is for the caller to sync.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = open_private(temporary, os.O_RDWR | os.O_APPEND | os.O_EXCL)
    try:
        write_all(descriptor, b'{"kind":"segment","start":%d}\n' % start)
        sync_open(descriptor)  # without its head it would count as the whole
        temporary.rename(path)
    except OSError:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # a network volume may say only now what it thinks of the old one
        os.close(old)
    return descriptor


def _compressed(descriptor: int, begin: int, end: int) -> bytes:
    packer, pieces = zlib.compressobj(LEVEL, wbits=31), list[bytes]()
    for offset in range(begin, end, PIECE):
        pieces.append(packer.compress(os.pread(descriptor, min(PIECE, end - offset), offset)))
    return b"".join([*pieces, packer.flush()])


def _folder(path: Path) -> Path:
    return path.parent / "segments"


def _segment(path: Path, start: int) -> Path:
    return _folder(path) / f"{path.stem}-{start:018}{SUFFIX}"
