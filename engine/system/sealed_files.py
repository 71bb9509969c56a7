"""Small files of the cache with a seal: what a crash or a bad disk has damaged counts as not there."""

import contextlib
import zlib
from pathlib import Path

from ftui.system.files import replace_file


def write_sealed(path: Path, data: bytes) -> None:
    """Write the data with its checksum; a full disk is ignored, since the data can be computed again."""
    with contextlib.suppress(OSError):
        replace_file(path, data + _seal(data))


def read_sealed(path: Path) -> bytes | None:
    """The data that `write_sealed` wrote; `None` where the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    data = content[: -len(_seal(b""))]
    return data if content == data + _seal(data) else None


def _seal(data: bytes) -> bytes:
    return b"\ncrc32 %08x\n" % zlib.crc32(data)
