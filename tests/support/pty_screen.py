"""A program in a terminal of our own: what it writes and when, what the screen shows, what it costs."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil
import pyte

# What pyte does not know and would show as text: kitty's keyboard, mode queries, window operations.
UNKNOWN = re.compile(
    rb"\x1b\[[<>=?][0-9;]*[u$][a-z]?|\x1b\[\?[0-9;]*\$p|\x1b\[>[0-9;]*[a-zA-Z]|\x1b\[[0-9;]*t|\x1b[P_^].*?\x1b\\"
)
UNFINISHED = re.compile(rb"\x1b(\[[<>=?]?[0-9;]*\$?|[P_^][^\x1b]*\x1b?)?\Z")  # the start of one that is still to come
PAINT = b"\x1b[?2026h"
SYNC_QUERY, SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"  # a terminal that keeps frames whole says so
RIGHT_SHARE = 0.95  # of the final cells: the first frame counts as full


@dataclass
class Screened:
    """A program on a terminal of `columns` x `rows`. `reads`: what it wrote, with the seconds since its start."""

    pid: int
    descriptor: int
    columns: int
    rows: int
    started: float
    reads: list[tuple[float, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._screen, self._stream = _emulator(self.columns, self.rows)
        self._num_shown, self._pending = 0, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, seconds: float, *, until_quiet: float | None = None) -> int:
        """Take in what it writes for so long, or until it has been quiet for a while; returns the number of bytes."""
        deadline, last, count = time.perf_counter() + seconds, time.perf_counter(), 0
        while (now := time.perf_counter()) < deadline:
            if until_quiet is not None and self.reads and now - last > until_quiet:
                break
            if not select.select([self.descriptor], [], [], min(0.02, deadline - now))[0]:
                continue
            try:
                data = os.read(self.descriptor, 1 << 16)
            except OSError:  # the program has ended
                break
            if not data:
                break
            if SYNC_QUERY in data:
                os.write(self.descriptor, SYNC_ANSWER)
            last = time.perf_counter()
            self.reads.append((last - self.started, data))
            count += len(data)
        return count

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def wire(self) -> bytes:
        """All it ever wrote."""
        return b"".join(data for _, data in self.reads)

    def shown(self) -> list[str]:
        """The lines on the screen now."""
        data = self._pending + b"".join(data for _, data in self.reads[self._num_shown :])
        self._num_shown = len(self.reads)
        end = found.start() if (found := UNFINISHED.search(data)) else len(data)
        self._pending = data[end:]
        self._stream.feed(UNKNOWN.sub(b"", data[:end]))
        return list(self._screen.display)

    def wait_for(self, text: str, seconds: float = 60.0) -> list[str]:
        """Read until the text stands on the screen."""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self.read(0.3)
            lines = self.shown()
            if any(text in line for line in lines):
                return lines
        raise AssertionError(f"{text!r} did not appear on:\n" + "\n".join(self.shown()))

    def full_frame(self) -> float:
        """Seconds from the start until nearly all cells were what they are now."""
        final = self.shown()
        wanted = [(y, x) for y, line in enumerate(final) for x, sign in enumerate(line) if sign != " "]
        screen, stream = _emulator(self.columns, self.rows)
        for moment, data in self.reads:
            stream.feed(UNKNOWN.sub(b"", data))
            lines = screen.display
            right = sum(lines[y][x] == final[y][x] for y, x in wanted)
            if wanted and right >= RIGHT_SHARE * len(wanted):
                return moment
        raise AssertionError("it has shown nothing")

    def memory(self) -> tuple[int, int]:
        """Resident and proportional bytes, over the process and its children."""
        processes = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        found = [process.memory_full_info() for process in processes]
        return sum(info.rss for info in found), sum(info.pss for info in found)

    def cpu_seconds(self) -> float:
        """Of its threads that live, to the nanosecond: the clock of psutil ticks every 10 ms."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def paints(self) -> int:
        """How often it has painted, at all or in part: each is kept whole by a pair of marks."""
        return self.wire().count(PAINT)

    def resize(self, columns: int, rows: int) -> None:
        self.shown()  # what was drawn for the old size
        self.columns, self.rows = columns, rows
        self._screen.resize(rows, columns)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ended(self, seconds: float = 60.0) -> int:
        """Its exit code (minus the signal that ended it), once it has left of itself."""
        deadline = time.perf_counter() + seconds
        while not (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.perf_counter() < deadline, "it has not ended:\n" + "\n".join(self.shown())
            self.read(0.05)
        self.read(0.2)  # its last words
        return os.waitstatus_to_exitcode(found[1])

    def close(self) -> int:
        """End it if it still runs, and return its wait status."""
        if psutil.pid_exists(self.pid) and os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            os.kill(self.pid, signal.SIGKILL)
            status = os.waitpid(self.pid, 0)[1]
        else:
            status = 0
        os.close(self.descriptor)
        return status


def on_screen(command: Sequence[str], env: dict[str, str], columns: int, rows: int, cwd: str | None = None) -> Screened:
    """Start a program on a terminal of its own."""
    started = time.perf_counter()
    pid, descriptor = pty.fork()
    if pid == 0:
        if cwd is not None:
            os.chdir(cwd)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execvpe(command[0], list(command), env)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return Screened(pid, descriptor, columns, rows, started)


def display(reads: Sequence[tuple[float, bytes]], columns: int, rows: int) -> list[str]:
    screen, stream = _emulator(columns, rows)
    stream.feed(UNKNOWN.sub(b"", b"".join(data for _, data in reads)))
    return list(screen.display)


def _emulator(columns: int, rows: int) -> tuple[pyte.Screen, pyte.ByteStream]:
    screen = pyte.Screen(columns, rows)
    return screen, pyte.ByteStream(screen)
