"""The ends of two files that only grow: the engine's log, and what the machine is doing."""

import os
from collections import deque

from ftui.runs.journal import Tail
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.run_folder import Run
from ftui.system.files import UnsafePathError, open_plain
from ftui.system.segments import total_bytes

LINES_KEPT = 2000
LONGEST_LINE = 2000  # characters; a progress bar may write one line for an hour
FIRST_BYTES = 128 << 10  # of what stands there when it is opened: more than fits on any screen
PIECE = 1 << 20  # bytes read at a time, when a lot is new
SAMPLES_KEPT = 300  # one a second


class LogTail:
    """The last lines of engine.log. When a full log is begun anew, reading goes on in the new one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)

    def look(self) -> bool:
        """Take in what is new; False where nothing is."""
        try:
            with open(open_plain(self._run.engine_log), "rb") as file:
                stat = os.fstat(file.fileno())
                self._find_place(stat)
                file.seek(self._offset)
                data = file.read(PIECE)
        except (FileNotFoundError, UnsafePathError):  # not begun yet, or being moved aside in this moment
            return False
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        self.lines.extend(line[:LONGEST_LINE].decode(errors="backslashreplace") for line in whole)
        return bool(data)

    def _find_place(self, stat: os.stat_result) -> None:
        """Where to go on: near the end of a file that is opened for the first time, else where the last look ended."""
        is_first = self._inode == 0
        if stat.st_ino == self._inode and stat.st_size >= self._offset:
            if stat.st_size - self._offset > 4 * PIECE:  # a flood: nobody could read what is skipped
                self._offset, self._rest = stat.st_size - FIRST_BYTES, b""
            return
        self._inode, self._rest = stat.st_ino, b""
        self._offset = max(0, stat.st_size - FIRST_BYTES) if is_first else 0


class MachineTail:
    """The last few minutes of telemetry.jsonl, a sample a second."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail: Tail | None = None
        self.samples: deque[Telemetry] = deque(maxlen=SAMPLES_KEPT)

    def look(self) -> bool:
        try:
            if self._tail is None:
                start = start_near_end(self._run)
                if start is None:
                    return False
                self._tail = Tail(self._run.telemetry, start)
            records = [record for record in self._tail.read(PIECE) if isinstance(record, Telemetry)]
        except UnsafePathError:  # something else stands in its place: it only adds to the picture
            return False
        self.samples.extend(records)
        return bool(records)

    @property
    def newest(self) -> Telemetry | None:
        return self.samples[-1] if self.samples else None

    @property
    def machines(self) -> list[Telemetry]:
        """The newest sample of each machine of the run, that of rank 0 first."""
        return [self.newest, *self.newest.others] if self.newest else []


def start_near_end(run: Run) -> int | None:
    """Where the last piece of telemetry.jsonl begins, mostly within a line; `None` while there is no such file."""
    total = total_bytes(run.telemetry)
    return max(0, total - FIRST_BYTES) if total else None
