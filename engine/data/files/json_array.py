"""Rows cut out of a JSON list without parsing it: whatever its size, one row of it is held at a time."""

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from ftui.dataset.report import RowLocation
from ftui.errors import DataError

from .encodings import Utf8
from .json_row import parse_row
from .jsonl import CUT_IT, LONGEST, TOO_LONG
from .raw_rows import BadRow, RawRow

OUTSIDE = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.S
)  # up to a bracket, or a string without an end
INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.S)  # up to the end of a string
BARE = re.compile(rb'[^\s,:\[\]{}"]*+')  # a number, or a word
GUESSES, TAIL = 3, 40
MOST_OPEN = 100_000  # brackets within each other
_is_json = msgspec.json.Decoder(msgspec.Raw).decode
SPACE = re.compile(rb"[ \t\r\n]*+")


class EndOfFile(Exception):
    """The file ends in the middle of a value."""


class EndlessNestingError(Exception):
    """A value opens more brackets than any row has: they are not counted to their end, which takes 2 us each."""


class JsonWindow:
    """`held[pos:]` is what comes next; byte `offset` of the file is `held[0]`."""

    def __init__(self, chunks: Iterator[bytes], offset: int, line: int = 1) -> None:
        self._chunks = chunks
        self.held = b""
        self.pos = 0
        self.offset = offset
        self._tail = b""  # how the last object ended
        self._column = 1  # and in which column
        self._line, self._counted = line, 0  # the line on which held[_counted] stands

    @property
    def column(self) -> int:
        """The column of what comes next, in characters from 1."""
        self._count()
        return self._column

    @property
    def line(self) -> int:
        """The line of what comes next."""
        self._count()
        return self._line

    def _count(self) -> None:
        before, end, last = self.held[self._counted : self.pos].rpartition(b"\n")
        self._column = len(last.decode(errors="replace")) + (1 if end else self._column)
        self._line += before.count(b"\n") + len(end)
        self._counted = self.pos

    def sign(self) -> bytes:
        """The next byte that is no space, which stays; nothing at the end of the file."""
        while True:
            self.pos = _end(SPACE, self.held, self.pos)
            if self.pos < len(self.held):
                return self.held[self.pos : self.pos + 1]
            try:
                self._read_on(self.pos)
            except EndOfFile:
                return b""

    def value(self) -> bytes | None:
        """The value that begins here, which is passed; `None` where it is too long to be a row.

        Brackets are counted, not matched: whatever else is wrong with the value, the next one begins behind it.

        Raises:
            EndOfFile: the file ends before it does; `held[pos:]` is what there is of it.
            EndlessNestingError: it opens more than `MOST_OPEN` brackets.
        """
        start, begins = self.pos, self.held[self.pos : self.pos + 1]
        end = self._guessed_end() if begins == b"{" and self._tail else -1
        if end >= 0:
            self.pos = end
            return self.held[start:end]
        start = self._past_brackets(start) if begins in b'[{"' else self._past_word(start)
        if start < 0:
            return None
        text = self.held[start : self.pos]
        last_line = text[text.rfind(b"\n") :] if b"\n" in text[-TAIL:] else b""
        self._tail = last_line or text[-2:] if begins == b"{" else self._tail
        return text

    def _guessed_end(self) -> int:
        """Where the object that begins here ends if it ends as the last one did; else -1. It is JSON up to there.

        Rows of one writer end alike, and to look whether they are JSON takes a tenth of the time of counting brackets.
        """
        end = self.pos
        for _ in range(GUESSES):
            end = self.held.find(self._tail, end, self.pos + LONGEST) + len(self._tail)
            if end < len(self._tail):
                return -1
            try:
                _is_json(self.held[self.pos : end])
            except (ValueError, RecursionError):
                continue
            return end
        return -1

    def _past_word(self, start: int) -> int:
        while True:
            self.pos = _end(BARE, self.held, start)
            if self.pos < len(self.held):
                return start
            try:
                start -= self._read_on(start)
            except EndOfFile:
                self.pos = len(self.held)
                return start

    def _past_brackets(self, start: int) -> int:
        """Where the value begins now that more was read; -1 where it is too long, and its beginning forgotten."""
        in_string = self.held[start : start + 1] == b'"'
        pos, depth = start + in_string, 0
        while True:
            pos = _end(INSIDE if in_string else OUTSIDE, self.held, pos)
            byte = self.held[pos : pos + 1]
            if byte == b"" or byte == b"\\":
                if start >= 0 and pos - start > LONGEST:
                    start = -1
                self.pos = max(start, 0)
                forgotten = self._read_on(start if start >= 0 else pos)
                pos, start = pos - forgotten, start - forgotten if start >= 0 else -1
                continue
            pos += 1
            if byte == b'"':
                in_string = not in_string
            else:
                depth += 1 if byte in b"[{" else -1
                if depth > MOST_OPEN:
                    raise EndlessNestingError
            if depth <= 0:
                self.pos = pos
                return start if pos - start <= LONGEST else -1

    def _read_on(self, keep: int) -> int:
        """Reads more and forgets what stands before `keep`; gives the number of bytes forgotten."""
        chunk = next(self._chunks, b"")
        if not chunk:
            raise EndOfFile
        before, self.pos = self.pos, keep
        self._line, self._counted = self.line, 0
        self.held, self.offset = self.held[keep:] + chunk, self.offset + keep
        self.pos = before - keep
        return keep


def _end(pattern: re.Pattern[bytes], held: bytes, pos: int) -> int:
    match = pattern.match(held, pos)
    assert match is not None, "it matches nothing too"
    return match.end()


TURN_KEYS = {"role", "from", "content", "value"}
SHAPE = 'A .json file is a list of rows: [{"prompt": "...", "completion": "..."}, ...].'


def json_rows(path: str, chunks: Iterator[bytes], offset: int) -> Generator[RawRow | BadRow, None, bool]:
    """The rows of a list; objects one after another, with or without line ends; one object that is a row, or has a
    list of rows under one key.

    Returns:
        False where the file is one object longer than a row may be, which `rows_in_object` has to look into.

    Raises:
        DataError: it is none of these, or its brackets and commas are wrong.
    """
    window = JsonWindow(chunks, offset)
    match window.sign():
        case b"":
            return True
        case b"[":
            window.pos += 1
            yield from _list_rows(path, window)
            _at_end(path, window)
        case b"{":
            return (yield from _object_rows(path, window))
        case _:
            raise _fault(path, window, "no list of rows")
    return True


def rows_in_object(
    path: str, chunks: Iterator[bytes], offset: int, line: int = 1, wanted: str | None = None
) -> Iterator[RawRow | BadRow]:
    """The rows of the list under one key of one object: the `wanted` one, or the one that begins with an object.

    Raises:
        DataError: several lists begin so, or brackets and commas are wrong.
    """
    window = JsonWindow(chunks, offset, line)
    window.sign()
    names: list[str] = []
    while window.sign() in (b"{", b","):
        window.pos += 1
        name = _key(path, window)
        if window.sign() != b"[" or wanted not in (None, name):
            _value(path, window)
            continue
        window.pos += 1
        if window.sign() != b"{":
            _pass_list(path, window)
            continue
        names.append(name)
        if len(names) > 1:
            raise _several(path, names)
        yield from _list_rows(path, window)
    if window.sign() != b"}":
        raise _fault(path, window, "not JSON (',' or '}' expected)")
    window.pos += 1
    _at_end(path, window)


def _list_rows(path: str, window: JsonWindow) -> Iterator[RawRow | BadRow]:
    """What follows the [ of a list."""
    if window.sign() == b"]":
        window.pos += 1
        return
    number, utf8 = 0, Utf8(path)
    while True:
        number += 1
        yield _row(path, window, number, utf8)
        sign = window.sign()
        if sign not in (b",", b"]"):
            raise _fault(path, window, f"not JSON (',' or ']' expected after row {number})")
        window.pos += 1
        if sign == b"]":
            return


def _row(path: str, window: JsonWindow, number: int, utf8: Utf8) -> RawRow | BadRow:
    if window.sign() == b"":
        raise _fault(path, window, "not JSON (the list does not end)")
    line, column, offset = window.line, window.column, window.offset + window.pos
    where = RowLocation(path, number, "row")
    text = _value(path, window)
    if text is None:
        return BadRow(where, TOO_LONG, CUT_IT, line=line)
    return utf8.fault(where, text, offset, line, text) or RawRow(number, offset, text, line, column)


def _value(path: str, window: JsonWindow) -> bytes | None:
    if window.sign() in (b",", b":", b"]", b"}"):
        raise _fault(path, window, "not JSON (a value expected)")
    line, column, offset = window.line, window.column, window.offset + window.pos
    try:
        return window.value()
    except EndOfFile:
        torn = BadRow(RowLocation(path, line), "the JSON ends in the middle")
        match = parse_row(window.held[window.pos :], Path(path), line, "line", offset)
        fault = match.behind(line, column) if isinstance(match, BadRow) else torn
        raise replace(fault, hint="Mend the file there, or copy it again.").error() from None


def _object_rows(path: str, window: JsonWindow) -> Generator[RawRow | BadRow, None, bool]:
    """A file that begins with an object."""
    number, utf8 = 1, Utf8(path)
    first = _row(path, window, number, utf8)
    if window.sign() == b"":
        if isinstance(first, BadRow) and first.reason == TOO_LONG:
            return False
        yield from _single_object(path, first)
        return True
    yield first
    while window.sign():
        if window.sign() == b",":
            raise _fault(path, window, "not JSON (rows with commas between them need [ before the first, ] at the end)")
        number += 1
        yield _row(path, window, number, utf8)
    return True


def _single_object(path: str, first: RawRow | BadRow) -> Iterator[RawRow | BadRow]:
    """One object: a row, or a list of rows under one key."""
    value = (
        parse_row(first.text, Path(path), 1, "row", first.offset, first.line) if isinstance(first, RawRow) else first
    )
    if isinstance(value, BadRow) or isinstance(first, BadRow):
        yield first
        return
    origins = {"file_name", "hf_hub_url", "ms_hub_url", "script_url"}
    if any(isinstance(entry, dict) and origins & entry.keys() for entry in value.values()):
        names = ", ".join(list(value)[:5])
        raise DataError(
            f"{path} is a list of data sets (LLaMA-Factory's dataset_info.json), not rows.",
            hint=f"Name one of them as subset beside this path: {names} ...",
        )
    lists = [name for name, inner in value.items() if _is_rows(inner)]
    if len(lists) > 1:
        raise _several(path, lists)
    if lists:
        yield from rows_in_object(path, iter([first.text]), first.offset, first.line, lists[0])
    else:
        yield first


def _is_rows(value: object) -> bool:
    """A list of objects that are no turns of a conversation."""
    if not isinstance(value, list) or not value or not all(isinstance(inner, dict) for inner in value):
        return False
    return not all(len(TURN_KEYS & inner.keys()) > 1 for inner in value)


def _pass_list(path: str, window: JsonWindow) -> None:
    """To the end of a list that holds no rows."""
    while window.sign() not in (b"]", b""):
        _value(path, window)
        if window.sign() == b",":
            window.pos += 1
    window.pos += 1


def _key(path: str, window: JsonWindow) -> str:
    if window.sign() != b'"':
        raise _fault(path, window, "not JSON (a key in double quotes expected)")
    text = _value(path, window)
    if window.sign() != b":":
        raise _fault(path, window, "not JSON (':' expected)")
    window.pos += 1
    try:
        return str(json.loads(text or b'""'))
    except ValueError as error:
        raise _fault(path, window, f"not JSON (the key before is none: {error})") from error


def _several(path: str, names: list[str]) -> DataError:
    return DataError(
        f"{path} holds several lists of rows: {', '.join(map(repr, names))}.",
        hint="Write each into a file of its own.",
    )


def _at_end(path: str, window: JsonWindow) -> None:
    if window.sign():
        raise _fault(path, window, "not JSON (more after the end of the list)")


def _fault(path: str, window: JsonWindow, reason: str) -> DataError:
    window.sign()
    near = window.held[max(0, window.pos - 20) : window.pos + 20].decode(errors="replace").strip()
    return BadRow(RowLocation(path, window.line), reason, SHAPE, window.column, near).error()
