"""Append-only record files: one writer that never leaves a torn line behind, readers that lose nothing.

Bytes are split on `\\n` only (a text splitter would also cut at U+2028 or U+0085, which rows of data contain).
"""

import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from ftui.errors import DiskError, DiskFullError
from ftui.runs.events import AnyRecord
from ftui.runs.records.record import FORM, Record
from ftui.system.files import UnsafePathError, open_plain, open_private, sync_open, sync_path, write_all
from ftui.system.segments import LONGEST_LINE, LONGEST_SEGMENT, begin_anew, finish_move, read_older, segment_start
from ftui.system.volume import is_disk_full

PIECE = 1 << 20  # bytes of a long file that are read at a time
FEW = 4 << 10  # bytes; a look finds mostly fewer
_KINDS = {str(record.__struct_config__.tag) for record in get_args(AnyRecord)}
_decode_any = msgspec.json.Decoder(AnyRecord)
_encoder = msgspec.json.Encoder()


class Envelope(msgspec.Struct):
    """The kind of a line and the version of its form, read before all of it is decoded."""

    kind: str
    v: int = 1


_decode_envelope = msgspec.json.Decoder(Envelope)


def encode(record: Record) -> bytes:
    """One JSON line. A NaN or infinite float becomes null and its field's name is listed in `non_finite`."""
    bad = [name for name in record.__struct_fields__ if _is_non_finite(getattr(record, name))]
    extras = getattr(record, "extras", {})
    bad_extras = [name for name, value in extras.items() if _is_non_finite(value)]
    if bad or bad_extras:
        changes: dict[str, Any] = dict.fromkeys(bad)
        if bad_extras:
            changes["extras"] = {k: None if k in bad_extras else v for k, v in extras.items()}
        changes["non_finite"] = bad + bad_extras
        record = msgspec.structs.replace(record, **changes)
    return _encoder.encode(record) + b"\n"


def _is_non_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def cut_torn_line(descriptor: int) -> None:
    """Cut away what follows the last line feed of an open file: what a crash left of a line."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(descriptor, end)


def append_line(path: Path, line: bytes) -> None:
    """Append one line to a journal whose lock the caller holds, on the disk before this returns, whole or not at all.

    What a crash left of the last line is cut away first.
    """
    descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
    try:
        cut_torn_line(descriptor)
        before = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, line + b"\n")
            sync_open(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


class Writer:
    """The only process that appends to one record file. A line torn by a crash is cut away when it opens.

    A file of `longest` bytes is begun anew, and what it held is compressed (ftui/system/segments.py); `keep` of these
    older segments stay, `None` for all. One that a power loss has emptied goes on from its last segment.
    """

    def __init__(
        self, path: Path, *, attempt: int = 0, token: str = "", longest: int | None = None, keep: int | None = None
    ) -> None:
        self.attempt = attempt
        self.token = token
        self._path, self._keep = path, keep
        self._longest = math.inf if longest is None else longest
        self._longest_segment = longest or LONGEST_SEGMENT
        self._descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        self._is_torn = False
        try:
            cut_torn_line(self._descriptor)
            self._descriptor = finish_move(path, self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise

    def write(self, record: Record, *, durable: bool = False) -> None:
        """Stamp and append one record in one `os.write`; `durable` adds an fsync.

        Raises:
            DiskFullError: there was space for only part of the line (it is cut back) or for none of it.
            DiskError: the disk refused it, or cannot say that it is durable.
        """
        line = encode(msgspec.structs.replace(record, time=time.time(), attempt=self.attempt, token=self.token))
        try:
            if self._is_torn:  # the disk refused even to cut the last line back
                cut_torn_line(self._descriptor)
            before = os.fstat(self._descriptor).st_size
            if before >= self._longest:
                self._begin_anew()
                before = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            self._is_torn = written != len(line)
            if self._is_torn:
                os.ftruncate(self._descriptor, before)
                raise DiskFullError("The disk is full: a record could not be written.", hint="Free some space.")
            if durable:
                sync_open(self._descriptor)
        except OSError as error:
            message = f"A record could not be written: {error}."
            if is_disk_full(error):
                raise DiskFullError(message, hint="Free some space.") from error
            raise DiskError(message, hint="Check the volume.") from error

    def _begin_anew(self) -> None:
        """Where the disk has no room for that, the file grows on, and it is tried again later."""
        try:
            self._descriptor = begin_anew(self._path, self._descriptor, keep=self._keep, longest=self._longest_segment)
        except OSError as error:
            self._longest *= 1.25
            print(f"{self._path.name} could not be begun anew: {error}", flush=True)
            return
        sync_path(self._path.parent)  # or a crash of the machine brings the old file back, without what is durable here

    def close(self) -> None:
        """Close the file. The writer cannot be used again."""
        os.close(self._descriptor)


class Tail:
    """Reads the new complete lines of a record file since the last look; remembers what it could not read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.num_unknown = 0
        self.num_damaged = 0
        self._older: Iterator[tuple[int, bytes]] | None = None

    def read(self, limit: int | None = None) -> list[AnyRecord]:
        """The records added since the last call (all of them at the first); a torn last line waits for its end.

        With a `limit` about that many bytes are read, so that a long file can be read in pieces; none are left when
        `offset` stands still.

        Raises:
            UnsafePathError: it is no plain file, or has a line that is too long to be a record.
        """
        if limit is None:
            records, before = self.read(PIECE), -1
            while self.offset not in (before, 0):
                before = self.offset
                records += self.read(PIECE)
            return records
        data = self._read_bytes(limit)
        if not data:
            return []
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= LONGEST_LINE:
            raise UnsafePathError(f"{self.path} has a line too long to be a record.", hint="Remove the file.")
        self.offset += end
        return list(self._decode(data[:end].split(b"\n")[:-1]))

    def records(self) -> Iterator[AnyRecord]:
        """All that there are, as `read` gives them, with no more than a piece of the file in memory."""
        before = -1
        while self.offset != before:
            before = self.offset
            yield from self.read(PIECE)

    def _read_bytes(self, limit: int) -> bytes:
        """What lies at `offset`: of an older segment, where the file has been begun anew since."""
        try:
            descriptor = open_plain(self.path)
        except FileNotFoundError:
            return b""
        try:
            start = segment_start(descriptor)
            if self.offset < start:
                return self._read_older(start)
            data = os.pread(descriptor, FEW, self.offset - start)  # without a file object: most looks are in vain
            if len(data) == FEW:
                with open(descriptor, "rb", closefd=False) as file:
                    file.seek(self.offset - start)
                    data = file.read(limit)
                    if len(data) == limit:
                        data += file.readline(LONGEST_LINE)
        finally:
            os.close(descriptor)
        return data

    def _read_older(self, start: int) -> bytes:
        while self.offset < start:
            if self._older is None:
                self._older = read_older(self.path, self.offset, start)
            piece = next(self._older, None)
            if piece is None:  # all of what was older then; or the disk has failed, and is asked again
                self._older = None
                continue
            behind, data = piece
            self.offset = behind - len(data)
            if data:
                return data
            self.num_damaged += 1
        return b""

    def _decode(self, lines: Iterable[bytes]) -> Iterable[AnyRecord]:
        for line in lines:
            try:
                envelope = _decode_envelope.decode(line)
                if envelope.kind == "segment":
                    continue
                if envelope.kind not in _KINDS or envelope.v > FORM:
                    self.num_unknown += 1
                else:
                    yield _decode_any.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.num_damaged += 1
