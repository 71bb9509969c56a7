"""Plain text: a file is one row; one too big for that is cut at blank lines, so that any file streams.

U+FEFF is left out wherever it stands: as the mark of a file it comes in between where several were joined.
"""

from collections.abc import Iterator

import msgspec

from ftui.dataset.report import RowLocation

from .encodings import Utf8
from .raw_rows import BadRow, RawRow

PIECE = 8 << 20  # bytes of a row at most


def text_rows(path: str, chunks: Iterator[bytes], offset: int) -> Iterator[RawRow | BadRow]:
    """The text in rows of up to 8 MiB, each with the line on which it begins.

    Raises:
        DataError: it is not UTF-8.
    """
    line, held, utf8 = 1, bytearray(), Utf8(path)
    for chunk in chunks:
        held += chunk
        while len(held) > PIECE:
            piece = bytes(held[: _cut(held)])
            del held[: len(piece)]
            yield from _piece(path, piece, offset, line, utf8)
            line, offset = line + piece.count(b"\n"), offset + len(piece)
    yield from _piece(path, bytes(held), offset, line, utf8)


def _cut(held: bytearray) -> int:
    """Behind the last blank line that fits, else the last line, else the last character."""
    for end in (b"\n\n", b"\n\r\n", b"\n"):
        position = held.rfind(end, 0, PIECE)
        if position > 0:
            return position + len(end)
    whole = PIECE
    while whole > PIECE - 4 and held[whole] & 0xC0 == 0x80:  # in the middle of a character
        whole -= 1
    return whole


def _piece(path: str, piece: bytes, offset: int, line: int, utf8: Utf8) -> Iterator[RawRow | BadRow]:
    where = RowLocation(path, line)
    try:
        text = piece.decode().replace("\ufeff", "")
    except UnicodeDecodeError as error:
        bad = utf8.fault(where, piece, offset, line, piece[error.start :])
        raise utf8.refusal(bad.reason, bad.line or line) if bad else error from error
    if text.strip():
        yield RawRow(line, offset, msgspec.json.encode({"text": text}))
