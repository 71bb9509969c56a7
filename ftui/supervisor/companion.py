"""A process beside a run that follows the run's files and that nobody waits for: a tracker, the hooks, the notices.

It notices by the end of a pipe (its lifeline) that the run or its supervisor has ended, and ends by itself.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, make_private_folder, open_plain, open_private, read_json

LONGEST_REASON = 300


class Progress(msgspec.Struct):
    """The part of its state file that a supervisor reads: bytes of metrics.jsonl that it has read, and its note."""

    metrics: int = 0
    note: str = ""


class Companion:
    """That process. `lifeline` is the end of the pipe that this process holds."""

    def __init__(
        self, run: Run, name: str, module: Sequence[str], folder: Path, file_name: str, keep_open: Sequence[int] = ()
    ) -> None:
        """`module` with its arguments after the run's folder. `folder`: of its log and state. `keep_open`: descriptors
        that it gets too.

        Raises:
            OSError: there is no space for its log or no process to be had.
        """
        self.name = name
        make_private_folder(folder, inside=run.folder)
        self.log = folder / f"{file_name}.log"
        self._state = folder / f"{file_name}.json"
        self._last_progress = Progress()
        self._process, self.lifeline = _start(run, module, self.log, keep_open)

    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def reason(self) -> str:
        """Why it failed, in the last line it wrote; nothing where it ended well."""
        code = self._process.poll()
        return (_last_line(self.log) or f"exit code {code}") if code else ""

    def failure(self) -> str:
        """The same as a warning of a run."""
        reason = self.reason()
        return f"{self.name} has failed: {reason}. The run continues without it." if reason else ""

    def news(self) -> list[str]:
        """New messages about it: its note, once."""
        before, progress = self._last_progress, self.progress()
        self._last_progress = progress
        return [f"{self.name}: {progress.note}"] if progress.note and progress.note != before.note else []

    def end(self) -> None:
        """Tell it that nothing more comes."""
        os.close(self.lifeline)

    def progress(self) -> Progress:
        """What its state file says."""
        try:
            return read_json(self._state, Progress)
        except (OSError, *DAMAGED):
            return self._last_progress


def look_at(companions: list[Companion]) -> list[str]:
    """What each reports, or why it ended; those that have are taken from the list."""
    messages = []
    for companion in [*companions]:
        messages += companion.news()
        if companion.has_ended():
            companions.remove(companion)
            companion.end()
            messages += filter(None, [companion.failure()])
    return messages


def _start(
    run: Run, module: Sequence[str], log: Path, keep_open: Sequence[int]
) -> tuple["subprocess.Popen[bytes]", int]:
    """The process, in a session of its own (what ends the engine's group does not end it), and its lifeline."""
    output = open_private(log, os.O_WRONLY | os.O_APPEND)
    far_end, near_end = os.pipe()
    name, *arguments = module
    command = [sys.executable, "-P", "-m", name, str(run.folder), *arguments, str(far_end)]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=run.folder,
            pass_fds=(far_end, *keep_open), start_new_session=True,
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
