"""A contestant as a process of its own: when its steps ended, what memory and CPU its processes took."""

import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Watch:
    """Looks ten times a second at all processes below this one, also at those whose parents have gone.

    The peak is the largest sum of proportional set sizes: memory that several processes share counts once. (That sum is
    slow to read; it is read whenever the sum of the resident sizes is above its last peak.)
    """

    peak_bytes: int = 0
    cpu: list[tuple[float, float]] = field(default_factory=list)  # (time, CPU seconds up to then)
    _resident_peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        me, round_number = psutil.Process(), 0
        processes: list[psutil.Process] = []
        while not self._stop.wait(0.1):
            if round_number % 5 == 0:
                processes = me.children(recursive=True)
            round_number += 1
            self._look(processes)

    def _look(self, processes: list[psutil.Process]) -> None:
        resident, seconds = 0, 0.0
        for process in processes:
            try:
                resident += process.memory_info().rss
                times = process.cpu_times()
            except psutil.Error:  # it has ended
                continue
            seconds += times.user + times.system
        self.cpu.append((time.time(), seconds))
        if resident > self._resident_peak * 1.005:
            self._resident_peak = resident
            self.peak_bytes = max(self.peak_bytes, sum(proportional_bytes(process.pid) for process in processes))

    def cpu_seconds(self, start: float, end: float) -> float:
        """Of all processes between two times; each of them must live through it."""
        return self._cpu_at(end) - self._cpu_at(start)

    def _cpu_at(self, when: float) -> float:
        before = [entry for entry in self.cpu if entry[0] <= when]
        after = [entry for entry in self.cpu if entry[0] > when]
        if not before or not after:
            return (before or after)[-1][1]
        (t0, c0), (t1, c1) = before[-1], after[0]
        return c0 + (c1 - c0) * (when - t0) / (t1 - t0)


def proportional_bytes(pid: int) -> int:
    """PSS; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@dataclass(frozen=True)
class Ran:
    """How a command went: its own start, its memory, and the share of the CPU that other programs took meanwhile."""

    start: float
    watch: Watch
    share_of_others: float
    output: str
    returncode: int
    seconds: float


def run_watched(command: list[str], folder: Path, environment: dict[str, str], timeout: float) -> Ran:
    """Run a command to its end with its memory watched; it is killed, with all it started, after `timeout` seconds."""
    log = folder / "output.txt"
    others, start = _seconds_of_others(), time.time()
    with Watch() as watch, log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
            for child in psutil.Process().children(recursive=True):
                child.kill()
    seconds = time.time() - start
    others = (_seconds_of_others() - others) / seconds / (psutil.cpu_count() or 1)
    return Ran(start, watch, max(0.0, others), log.read_text(errors="replace"), code, seconds)


def _seconds_of_others() -> float:
    """CPU seconds of all programs but this one and its children."""
    everyone, mine, children = (
        psutil.cpu_times(),
        psutil.Process().cpu_times(),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    own = mine.user + mine.system + children.ru_utime + children.ru_stime
    return float(everyone.user + everyone.nice + everyone.system) - own
