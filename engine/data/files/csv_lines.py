"""The lines of a CSV file for Python's reader, with their places, and a way back where a quote is never closed."""

from collections.abc import Iterator
from typing import NamedTuple

from ftui.dataset.report import Where

from .encodings import BOM, SAMPLE, Utf8
from .jsonl import CUT_IT, LONGEST, TOO_LONG
from .raw_rows import BadRow


class _CsvLine(NamedTuple):
    """`text` with its line end (of one that is too long, the beginning) has `size` bytes and begins in `data`."""

    text: bytes
    size: int
    data: bytes
    start: int


class CsvLines:
    """An iterator over lines of text with their line ends. `number` lines were given; the next begins at byte `offset`.

    A mark of UTF-8 (BOM) before a record, as `cat` leaves one between files, is no part of it.

    Lines end with LF or CR LF; or with CR, where the first one does (Excel's "CSV (Macintosh)"). Elsewhere a CR within
    a line is left for the reader to refuse: half a cell must not become a row. In the middle of a file nobody can tell:
    there they end as in the one that they are `like`.
    """

    def __init__(self, path: str, chunks: Iterator[bytes], offset: int, like: "CsvLines | None" = None) -> None:
        self.path = path
        self._utf8 = Utf8(path)
        self._end_with_cr: bool | None = like._end_with_cr if like else None
        self._cut = self._cut_out(chunks)
        self._given: list[_CsvLine] = []
        self._again: list[_CsvLine] = []
        self.number, self.offset, self.begins = 0, offset, 1
        self.fault: BadRow | None = None

    def new_record(self) -> None:
        """A record begins with the next line. From now on `fault` is what is wrong with the bytes of this one."""
        self._given, self.fault, self.begins = [], None, self.number + 1

    def back(self) -> None:
        """Goes back to the second line of the record."""
        others = self._given[1:]
        self._again += reversed(others)
        self.number -= len(others)
        self.offset -= sum(line.size for line in others)

    def __iter__(self) -> "CsvLines":
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._cut)
        self._given.append(line)
        self.number += 1
        begins, self.offset = self.offset, self.offset + line.size
        where = Where(self.path, self.begins)
        text = line.text.removeprefix(BOM) if self.number == self.begins else line.text
        if line.size > LONGEST:
            self.fault = BadRow(where, TOO_LONG, CUT_IT, line=self.number)
            return ""
        try:
            return text.decode()
        except UnicodeDecodeError:
            sample = line.data[line.start : line.start + SAMPLE]
            self.fault = self.fault or self._utf8.fault(where, line.text, begins, self.number, sample)
            return line.text.decode(errors="replace")

    def _cut_out(self, chunks: Iterator[bytes]) -> Iterator[_CsvLine]:
        rest, dropped = b"", 0
        for chunk in chunks:
            data = rest + chunk if rest else chunk
            if self._end_with_cr is None:
                self._end_with_cr = b"\r" in data.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
            start = 0
            for text in data.splitlines(keepends=True) if self._end_with_cr else _with_ends(data):
                if start + len(text) == len(data) and not text.endswith(b"\n"):
                    break  # it, or its CR LF, may go on
                yield _CsvLine(text, dropped + len(text), data, start)
                start, dropped = start + len(text), 0
            rest = data[start:]
            if len(rest) > LONGEST:
                rest, dropped = rest[: LONGEST // 2], dropped + len(rest) - LONGEST // 2
        if rest:
            yield _CsvLine(rest, dropped + len(rest), rest, 0)


def _with_ends(data: bytes) -> Iterator[bytes]:
    *whole, rest = data.split(b"\n")
    for line in whole:
        yield line + b"\n"
    if rest:
        yield rest
