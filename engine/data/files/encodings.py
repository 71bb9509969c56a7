"""Text of any encoding as UTF-8; where none is named, other bytes are refused with their place and a guess."""

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from ftui.dataset.report import RowLocation
from ftui.errors import DataError

from .encoding_guess import SAMPLE, guess_encodings, is_utf8
from .raw_rows import BadRow
from .streams import CHUNK

BOM = b"\xef\xbb\xbf"
WIDE = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
LOOKED_AT = 1000  # bytes at the start of a file that tell UTF-16 without a mark
ICONV = "or convert the file to UTF-8, for example with iconv"


def utf8_chunks(path: str, stream: BinaryIO, encoding: str | None) -> tuple[int, Iterator[bytes]]:
    """The bytes of a text file in UTF-8 without its mark, and how many bytes that mark was.

    Raises:
        DataError: (also later) no such encoding, or bytes that are none of it; UTF-16 where no encoding is named.
    """
    head = stream.read(CHUNK)
    rest = iter(lambda: stream.read(CHUNK), b"")
    if encoding is not None and not _is_utf8(path, encoding):
        return 0, _recoded(path, chain([head], rest), encoding)
    wide, byte = _wide(head)
    if wide:
        raise DataError(
            f"{path}:1: not UTF-8 (byte {byte}: 0x{head[byte]:02x}) but {wide.upper()}.",
            hint=f'Set data.encoding = "{wide}", {ICONV}.',
        )
    start = len(BOM) if head.startswith(BOM) else 0
    return start, chain([head[start:]], rest)


def _is_utf8(path: str, encoding: str) -> bool:
    try:
        "".encode(encoding)  # refuses codecs that make no text, as base64
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"{path}: there is no encoding {encoding!r}.",
            hint='Set data.encoding to one that Python knows, for example "cp1252", "utf-16" or "shift_jis".',
        ) from error
    return name in ("utf-8", "utf-8-sig", "ascii")


def _recoded(path: str, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    num_bytes, line, is_first = 0, 1, True
    for chunk in chain(chunks, [b""]):
        num_bytes += len(chunk)
        try:
            text = decoder.decode(chunk, final=not chunk)
            data = (text.removeprefix("\ufeff") if is_first else text).encode()
        except UnicodeDecodeError as error:
            byte = num_bytes - len(error.object) + error.start
            line += error.object[: error.start].decode(encoding, "ignore").count("\n")
            raise DataError(
                f"{path}:{line}: not {encoding} (byte {byte}: 0x{error.object[error.start]:02x}).",
                hint="Check data.encoding.",
            ) from error
        except UnicodeError as error:
            hint = f'Without a mark it is "{encoding}-le" or "{encoding}-be".' if "BOM" in str(error) else ""
            reason = f"{path} cannot be read as {encoding} ({error})."
            raise DataError(reason, hint=f"Check data.encoding. {hint}".strip()) from error
        is_first = is_first and not text
        line += text.count("\n")
        if data:
            yield data


def _wide(head: bytes) -> tuple[str, int]:
    """UTF-16 or UTF-32 by its mark, or by the zeros that every other byte of most scripts' text then is; ISO 2022 by
    the signs with which it goes over to another script: all its bytes are ASCII."""
    for mark, name in WIDE.items():
        if head.startswith(mark):
            return name, 0
    if (escape := re.search(rb"\x1b\$(?:[@B]|\)C)", head)) is not None:
        return ("iso2022_kr" if escape.group().endswith(b"C") else "iso2022_jp"), escape.start()
    even, odd = head[:LOOKED_AT:2].count(0), head[1:LOOKED_AT:2].count(0)
    few, half = len(head[:LOOKED_AT]) // 100, len(head[:LOOKED_AT]) // 2
    if min(even, odd) > few or max(even, odd) < max(4, half // 5):
        return "", 0
    return ("utf-16-be" if even > odd else "utf-16-le"), head.index(0)


class Utf8:
    """Looks whether the rows of one file are UTF-8. Single ones that are not are bad rows, many a wrong encoding."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_some = False  # text beyond ASCII that is UTF-8: the file is, whatever single rows are
        self._guesses: list[tuple[str, str]] | None = None

    def holds(self, data: bytes) -> bool:
        """Whether all of it is UTF-8."""
        if not is_utf8(data):
            return False
        self._has_some = self._has_some or not data.isascii()
        return True

    def fault(self, where: RowLocation, row: bytes, offset: int, line: int, sample: bytes) -> BadRow | None:
        """What is wrong with a row that begins at this byte and line; `sample` is the file from there on.

        Raises:
            DataError: there is no UTF-8 in the sample at all, but more rows like this one.
        """
        try:
            row.decode()
        except UnicodeDecodeError as error:
            byte, value = offset + error.start, row[error.start]
            line += row[: error.start].count(b"\n")
        else:
            self._has_some = self._has_some or not row.isascii()
            return None
        self._guesses = guess_encodings(sample) if self._guesses is None else self._guesses
        reason = f"not UTF-8 (byte {byte}: 0x{value:02x})"
        if not self._has_some and self._is_foreign(sample):
            raise self.refusal(reason, line)
        hint = f"Mend or delete that row{self._advice(', or ')}."
        return BadRow(where, reason, hint, line=line or None)

    def refusal(self, reason: str, line: int) -> DataError:
        """The error of a file in another encoding, with what it may be."""
        words = " or ".join(f'{name} ("{excerpt}")' for name, excerpt in self._guesses or ())
        seems = f": it may be {words}, which is a guess" if words else ""
        hint = f"Name its encoding: {self._advice('')}, {ICONV}." if words else f"Set data.encoding, {ICONV}."
        return DataError(f"{self._path}:{line}: {reason}{seems}.", hint=hint)

    def _advice(self, before: str) -> str:
        names = [f'"{name}"' for name, _ in self._guesses or ()]
        return f"{before}data.encoding = {' or '.join(names)}" if names else ""

    @staticmethod
    def _is_foreign(sample: bytes) -> bool:
        lines = [line for line in sample[:SAMPLE].split(b"\n") if not line.isascii()]
        return len(lines) > 1 and not any(is_utf8(line) for line in lines[:-1])  # the last may be half a line
