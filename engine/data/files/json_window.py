"""A window that moves over a file of JSON and finds where values end, without parsing them."""

import re
from collections.abc import Iterator

import msgspec

from .jsonl import LONGEST

OUTSIDE = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.S
)  # up to a bracket, or a string without an end
INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.S)  # up to the end of a string
BARE = re.compile(rb'[^\s,:\[\]{}"]*+')  # a number, or a word
GUESSES, TAIL = 3, 40
_is_json = msgspec.json.Decoder(msgspec.Raw).decode
SPACE = re.compile(rb"[ \t\r\n]*+")


class EndOfFile(Exception):
    """The file ends in the middle of a value."""


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
            Ended: the file ends before it does; `held[pos:]` is what there is of it.
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
    found = pattern.match(held, pos)
    assert found is not None, "it matches nothing too"
    return found.end()
