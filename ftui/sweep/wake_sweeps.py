"""Starts the process of each sweep that has something to do and none: every command of ftui does."""

import subprocess
import sys

from ftui.queue.wake import start_holding
from ftui.sweep.sweep_files import SweepFiles, all_sweeps
from ftui.system.files import try_lock

COMMAND = [sys.executable, "-P", "-m", "ftui.sweep"]


def wake_sweeps() -> None:
    """Look at every sweep that is known here.

    Raises:
        OSError: one cannot be read, or no process started for it; the others have been looked at.
    """
    problem: OSError | None = None
    for files in all_sweeps():
        try:
            wake(files)
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem


def wake(files: SweepFiles) -> "subprocess.Popen[bytes] | None":
    """Start the sweep's process, which outlives this one and its terminal, if it is needed and there is none."""
    if not files.read().is_at_work or (lock := try_lock(files.lock)) is None:
        return None
    return start_holding(lock, [*COMMAND, str(files.folder)], files.log, files.folder)
