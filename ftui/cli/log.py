"""`ftui log`: the course of a run in lines, or with --output what its engine printed."""

import os
import sys
import time
import tomllib
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import BinaryIO

import msgspec

from ftui.errors import FINISHED, INTERRUPTED, DiskError
from ftui.runs.events import AnyRecord, Step
from ftui.runs.records import record_lines, result_lines
from ftui.runs.run_folder import Run, find_run
from ftui.runs.state import RunState, ended_badly, rank_words
from ftui.runs.status import Offsets, Status, Watch, is_running, judge, read_status
from ftui.supervisor.spawn import ensure_supervised
from ftui.system.files import open_plain, read_plain
from ftui.system.segments import total_bytes
from ftui.text import shown

LOOK_SECONDS = 0.25
LONGEST_LINE = 1 << 20  # bytes of engine.log that are printed as one
LOGGING_STEPS = 10  # between two printed steps, where neither profile nor request say so
PHASES = ("starting", "preparing", "loading", "held")  # which no step, evaluation or checkpoint shows
STEP_BYTES = 1 << 10  # a line of metrics.jsonl is shorter
LEAST_BYTES = 16 << 20  # of metrics.jsonl: the time left is that of `ftui status` where an attempt is read whole


def print_log(name: str, *, follow: bool, num_lines: int | None, output: bool) -> int:
    """`ftui log RUN`: the last lines, then with `follow` what is added while the run is running or until Ctrl-C.

    Args:
        num_lines: how many; `None`: all.
        output: what the engine printed, instead of the course of the run.

    Raises:
        DiskError: a file of the run cannot be read.
    """
    run = find_run(name)
    pieces = output_lines(run, follow=follow) if output else course_lines(run, num_lines, follow=follow)
    try:
        for lines in _last(pieces, num_lines):
            for line in lines:
                print(line)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    return FINISHED


def _last(pieces: Iterator[list[str]], num_lines: int | None) -> Iterator[list[str]]:
    """The last lines of all there is (up to the first empty piece), then all that follow."""
    if num_lines is not None:
        last: deque[str] = deque(maxlen=num_lines)
        num_passed = 0
        for lines in iter(lambda: next(pieces, []), []):
            last.extend(lines)
            num_passed += len(lines)
        yield list(last)
        if num_passed > num_lines:
            print(f"These are the last {num_lines} lines; -n all prints every one.", file=sys.stderr)
    yield from pieces


def course_lines(run: Run, num_lines: int | None, *, follow: bool) -> Iterator[list[str]]:
    """The lines of what has happened, record by record; an empty list stands between what was and what is new."""
    logging_steps = _logging_steps(run)
    watch, is_cut = _begin(run, num_lines, logging_steps)
    course = Course(logging_steps, is_cut=is_cut)
    for record, state in watch.replay():
        if lines := course.lines(record, state):
            yield lines
    yield []
    ensure_supervised(run, judge(run, watch))
    while True:
        status = read_status(run)  # asked before reading: what is written last is still read
        for record, state in watch.read():
            yield course.lines(record, state)
        if not follow or not is_running(status):
            break
        time.sleep(LOOK_SECONDS)
    if status.unreadable:
        raise DiskError(status.unreadable)
    yield [shown(line) for line in _last_words(run, status.state)]


def _last_words(run: Run, state: RunState) -> Iterator[str]:
    if state.phase == "queued" and state.attempt == 0:
        yield f"{run.name} has done nothing yet."
    if state.phase == "lost":
        yield f"lost: {result_lines.lost_reason(state)}"
    if state.phase == "lost" or ended_badly(state):
        yield f"`ftui log {run.name} --output` prints what its engine printed."


def _begin(run: Run, num_lines: int | None, logging_steps: int) -> tuple[Watch, bool]:
    """A watch at the start of a run; or, of a very long one, at the steps that its last lines come from, and true."""
    size = total_bytes(run.metrics) if num_lines is not None else 0
    start = max(0, size - max(LEAST_BYTES, (num_lines or 0) * logging_steps * STEP_BYTES))
    return Watch(run, Status(offsets=Offsets(metrics=start))), start > 0


def _logging_steps(run: Run) -> int:
    try:
        value = tomllib.loads(read_plain(run.profile).decode())["log"]["logging_steps"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # damaged: lists and logs do without it
        return LOGGING_STEPS
    return value if isinstance(value, int) and value > 0 else LOGGING_STEPS


class Course:
    """Writes records as the lines of a log, with the local time before each, and the date before the first of a day.

    Where the first steps are cut off, the tokens that are left are not known, and the time left is that of the steps.
    """

    def __init__(self, logging_steps: int, *, is_cut: bool = False) -> None:
        self._logging_steps, self._is_cut = logging_steps, is_cut
        self._day = self._phase = ""

    def lines(self, record: AnyRecord, state: RunState) -> list[str]:
        """The lines for one record, `state` being what it led to; none for most."""
        lines = record_lines.event_lines(record)
        if state.phase != self._phase and state.phase in PHASES:
            lines += record_lines.phase_line(record)
        self._phase = state.phase
        lines += record_lines.ending_lines(record, state)
        lines += record_lines.rollout_lines(record, state.logging_steps or self._logging_steps)
        if self._is_cut:
            state = msgspec.structs.replace(state, tokens_ahead=None)
        lines += record_lines.step_lines(record, state, state.logging_steps or self._logging_steps)
        if isinstance(record, Step) and state.ranks and lines:
            lines.append(f"  {rank_words(state.ranks)}")
        return self._stamp(record.time, lines) if lines else []

    def _stamp(self, seconds: float, lines: list[str]) -> list[str]:
        when = time.localtime(seconds)
        day, clock = time.strftime("%Y-%m-%d", when), time.strftime("%H:%M:%S", when)
        date, self._day = [day] if day != self._day else [], day
        return [*date, f"{clock} {lines[0]}", *(f"{' ' * len(clock)} {line}" for line in lines[1:])]


def output_lines(run: Run, *, follow: bool) -> Iterator[list[str]]:
    """The lines of engine.log and of what it was before, safe to print; a line without its end is given last.

    An empty list stands where all there is has been read.
    """
    while not run.engine_log.exists():
        if not (follow and is_running(read_status(run))):
            print(f"{shown(run.name)} has no engine.log yet.", file=sys.stderr)
            return
        time.sleep(LOOK_SECONDS)
    rest = b""
    for data in _log_pieces(run, follow=follow):
        *whole, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            whole, rest = [*whole, rest], b""
        if whole or not data:
            yield [_log_line(line) for line in whole]
    if rest:
        yield [_log_line(rest)]


def _log_pieces(run: Run, *, follow: bool) -> Iterator[bytes]:
    """The bytes of the log across all its files: a full engine.log becomes engine.log.1 and is begun anew.

    None where all there is has been read.
    """
    file: BinaryIO | None = None
    try:
        while True:
            running = follow and is_running(read_status(run))  # asked before reading: what it wrote last is still read
            file, moved = yield from _newest_log(run, file)
            if moved:
                continue
            if not running:
                return
            yield b""
            time.sleep(LOOK_SECONDS)
    finally:
        if file is not None:
            file.close()


def _newest_log(run: Run, file: BinaryIO | None) -> Generator[bytes, None, tuple[BinaryIO | None, bool]]:
    """Read `file` to its end, or begin with what stands before engine.log; go over to engine.log where that is another.

    Returns:
        The file that was read last, and whether it is one that has yet to be read.
    """
    with ExitStack() as stack:
        try:
            log = stack.enter_context(open(open_plain(run.engine_log), "rb"))
        except FileNotFoundError:  # it is being moved aside in this moment
            return file, False
        if file is not None:
            yield from _rest_of(file)
            if _inode(file) == _inode(log):
                return file, False
        if run.engine_log_before.exists():
            with open(open_plain(run.engine_log_before), "rb") as before:
                if _inode(before) not in (_inode(log), -1 if file is None else _inode(file)):
                    yield from _rest_of(before)
        if file is not None:
            file.close()
        stack.pop_all()  # it stays open
        return log, True


def _rest_of(file: BinaryIO) -> Iterator[bytes]:
    while data := file.read(1 << 16):
        yield data


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _log_line(line: bytes) -> str:
    return shown(line.decode(errors="backslashreplace"))
