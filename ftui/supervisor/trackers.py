"""The trackers of a run (TensorBoard, wandb, trackio) as its supervisor sees them: each is a process of its own that
follows the run's files.

Nobody waits for one: when it hangs, dies or is not installed, the run only says so. It notices by the end of a pipe
(its lifeline) that the run or its supervisor has ended, hands on what is left, and ends itself.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, make_private_folder, open_plain, open_private, read_json

STILL_SECONDS = 60.0  # a tracker that takes nothing for so long is slow
FINISH_SECONDS = 5.0  # how long the supervisor stays for what is left at the end
LEFT_SECONDS = 30.0  # how long a tracker may continue after the run's end, supervisor or not
LONGEST_REASON = 300


class Progress(msgspec.Struct):
    """The part of trackers/NAME.json that a supervisor reads: bytes that the tracker has read, and its note."""

    metrics: int = 0
    note: str = ""


class Tracker:
    """The process of one tracker. `lifeline` is the end of the pipe that this process holds."""

    def __init__(self, run: Run, name: str) -> None:
        """Raises `OSError` when there is no space for its log or no process to be had."""
        self.name = name
        self.log = make_private_folder(run.trackers, inside=run.folder) / f"{name}.log"
        self._run = run
        self._process, self._lifeline = _start(run, name, self.log)
        self._state = run.trackers / f"{name}.json"
        self._last_progress = Progress()
        self._moved = time.monotonic()
        self._is_slow = False

    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def has_all(self) -> bool:
        """Whether it has handed on every step that there is by now."""
        return self._progress().metrics >= _size(self._run.metrics)

    def reason(self) -> str:
        """Why it failed, in the last line it wrote; nothing where it ended well."""
        code = self._process.poll()
        return (_last_line(self.log) or f"exit code {code}") if code else ""

    def failure(self) -> str:
        """The same as a warning of a run."""
        reason = self.reason()
        return f"{self.name} has failed: {reason}. The run continues without it." if reason else ""

    def news(self) -> list[str]:
        """New messages about the tracker: its note, and that it is slow; each once."""
        messages = []
        now, progress = time.monotonic(), self._progress()
        if progress.note and progress.note != self._last_progress.note:
            messages.append(f"{self.name}: {progress.note}")
        if progress.metrics != self._last_progress.metrics or progress.metrics >= _size(self._run.metrics):
            self._moved = now
        elif now - self._moved > STILL_SECONDS and not self._is_slow:
            self._is_slow = True
            messages.append(f"{self.name} has taken nothing for {STILL_SECONDS:.0f} s. The run does not wait for it.")
        self._last_progress = progress
        return messages

    def end(self) -> None:
        """Tell it that nothing more comes."""
        os.close(self._lifeline)

    def _progress(self) -> Progress:
        try:
            return read_json(self._state, Progress)
        except (OSError, *DAMAGED):
            return self._last_progress


class Trackers:
    """All trackers of a run; `look` and `finish` return warnings for people."""

    def __init__(self, run: Run, names: Iterable[str]) -> None:
        self._running: list[Tracker] = []
        self._news: list[str] = []
        for name in names:
            try:
                self._running.append(Tracker(run, name))
            except OSError as error:
                self._news.append(
                    f"{name} could not be started: {str(error).rstrip('.')}. The run continues without it."
                )

    def look(self) -> list[str]:
        """Look at each tracker: what it reports, that it is slow, or why it ended."""
        messages, self._news = self._news, []
        for tracker in [*self._running]:
            messages += tracker.news()
            if tracker.has_ended():
                self._running.remove(tracker)
                tracker.end()
                messages += filter(None, [tracker.failure()])
        return messages

    def finish(self) -> list[str]:
        """The run has ended: give them a moment for what is left. One that needs longer is left to itself."""
        for tracker in self._running:
            tracker.end()
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline and not all(tracker.has_ended() for tracker in self._running):
            time.sleep(0.05)
        messages, self._news = self._news, []
        for tracker in self._running:
            messages += tracker.news()
            if tracker.has_ended():
                messages += filter(None, [tracker.failure()])
            else:
                patience = f"it continues for {LEFT_SECONDS:.0f} s at most"
                messages.append(f"{tracker.name} has not taken all of the run yet: {patience} (see {tracker.log}).")
        self._running = []
        return messages


def _start(run: Run, name: str, log: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """The process, in a session of its own (what ends the engine's group does not end it), and its lifeline."""
    output = open_private(log, os.O_WRONLY | os.O_APPEND)
    far_end, near_end = os.pipe()
    command = [sys.executable, "-P", "-m", "ftui.engine.trackers", str(run.folder), name, str(far_end)]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=run.folder, pass_fds=(far_end,),
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        os.close(near_end)
        raise
    finally:
        os.close(far_end)
        os.close(output)
    return process, near_end


def _last_line(log: Path) -> str:
    try:
        with open(open_plain(log), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="backslashreplace").split("\n")
    except OSError:
        return ""
    texts = [line.strip() for line in lines if line.strip()]
    return texts[-1][:LONGEST_REASON].rstrip(".") if texts else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
