"""The single steps of a part of a long run, for a closer look than its bounded curves allow.

metrics.jsonl is in the order of (attempt, step): attempts follow one another, and steps rise within each. So a part of
it is found by halving, a few hundred reads of a line whatever the length of the file, and only that part is decoded.
Of its older segments (ftui/system/segments.py), which are compressed, the first lines say which have the part, and
those are read from their start.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

import msgspec

from ftui.runs.curves import AttemptCurves, Curves, Series
from ftui.runs.run_folder import Run
from ftui.system.files import open_plain
from ftui.system.segments import LONGEST_LINE, Segment, read_older, segment_start, segments_before

CLOSE_ENOUGH = 4096  # bytes; the rest is read in a row

Key = tuple[int, int]
"""Attempt and step."""


class _Line(msgspec.Struct):
    """What is needed of a step's record."""

    step: int
    attempt: int = 0
    token: str = ""
    loss: float | None = None
    extras: dict[str, float | None] = {}


_decode = msgspec.json.Decoder(_Line)


def read_window(
    run: Run, curves: Curves, first: int, last: int, *, most_bytes: int, quantity: str = "loss"
) -> Curves | None:
    """The losses (or another measure) of steps `first` to `last` as far as they count, one by one up to 512.

    `curves` says which attempts there were and where each began. `None` where that would take more than `most_bytes`
    of the file, counting older segments whole, or where it cannot be read.
    """
    begins, ends = (_attempt_at(curves, first), first), (_attempt_at(curves, last), last + 1)
    try:
        with open(open_plain(run.metrics), "rb") as file:
            size = file.seek(0, 2)
            begin, end = _find(file, size, begins), _find(file, size, ends)
            older = _older_between(run, segment_start(file.fileno()), begins, ends) if begin == 0 else []
            if end - begin + sum(segment.end - segment.start for segment in older) > most_bytes:
                return None
            lines = chain(_older_lines(run, older), _lines(file, begin, size))
            return _gather(curves, lines, first, last, quantity)
    except OSError:  # not there, or its volume has trouble: the chart stays as coarse as it was
        return None


def _attempt_at(curves: Curves, step: int) -> int:
    """The attempt whose step it is: the newest that began before it."""
    return max((attempt.attempt for attempt in curves.attempts if attempt.start_step < step), default=0)


def _find(file: BinaryIO, size: int, key: Key) -> int:
    """A byte shortly before the first line that is not below `key`."""
    low, high = 0, size
    while high - low > CLOSE_ENOUGH:
        middle = (low + high) // 2
        line = next(_lines(file, middle, size), None)
        if line is None or (line.attempt, line.step) >= key:
            high = middle
        else:
            low = middle
    return low


def _older_between(run: Run, start: int, begins: Key, ends: Key) -> list[Segment]:
    """The older segments, before byte `start` of the whole, that may have steps from `begins` on, below `ends`."""
    older = segments_before(run.metrics, start)

    def first_key(segment: Segment) -> Key:
        line = next(_older_lines(run, [segment]), None)
        return (line.attempt, line.step) if line else (0, 0)

    return older[max(0, bisect_left(older, begins, key=first_key) - 1) : bisect_left(older, ends, key=first_key)]


def _older_lines(run: Run, segments: list[Segment]) -> Iterator[_Line]:
    """The readable steps of these segments, which follow one another."""
    if segments:
        for _, data in read_older(run.metrics, segments[0].start, segments[-1].end):
            yield from _decoded(data.split(b"\n")[:-1])


def _lines(file: BinaryIO, start: int, size: int) -> Iterator[_Line]:
    """The readable steps after byte `start`, which may lie within a line: that one is left out."""
    file.seek(max(0, start - 1))
    if start > 0:
        file.readline(LONGEST_LINE)  # the end of the line before, or of the one that `start` lies in
    while file.tell() < size:
        line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return
        yield from _decoded([line])


def _decoded(lines: list[bytes]) -> Iterator[_Line]:
    for line in lines:
        try:
            yield _decode.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue


def _gather(curves: Curves, lines: Iterator[_Line], first: int, last: int, quantity: str) -> Curves:
    """What counts of the lines, until they are past `last`."""
    gathered: dict[int, AttemptCurves] = {}
    by_number = {attempt.attempt: attempt for attempt in curves.attempts}
    end = (_attempt_at(curves, last), last)
    for line in lines:
        if (line.attempt, line.step) > end:
            break
        attempt = by_number.get(line.attempt)
        if attempt is None or line.token != attempt.token or _attempt_at(curves, line.step) != line.attempt:
            continue
        if not first <= line.step <= last or line.step > attempt.last_step:  # taken back by one that has yet to step
            continue
        if line.attempt not in gathered:
            gathered[line.attempt] = AttemptCurves(
                line.attempt, line.token, line.step - 1, line.step, {quantity: Series()}
            )
        gathered[line.attempt].last_step = line.step
        value = line.loss if quantity == "loss" else line.extras.get(quantity)
        gathered[line.attempt].series[quantity].add(line.step, value)
    return Curves(offset=0, attempts=list(gathered.values()))
