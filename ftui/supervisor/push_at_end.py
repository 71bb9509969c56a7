"""The push of a run that has finished, as its supervisor sees it: a process of its own, which can harm nothing.

final/ is whole by then. Where that process fails, or is killed with the pod, `ftui push RUN` goes on.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import clean_environment, say
from ftui.system.files import open_private

POLL_SECONDS = 0.05
LEAVE_SECONDS = 10.0  # for a push that is told to end to write down that it has
COMMAND = (sys.executable, "-P", "-m", "ftui.engine.pushing")


def push_at_end(run: Run, is_terminated: Callable[[], bool]) -> None:
    """Push what the profile says, unless the records have it already; returns when that has ended.

    `is_terminated`: whether this process was told to end, which ends the push.
    """
    try:
        output = open_private(run.push_log, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        return say(f"{run.push_log} cannot be written to, and nothing is pushed: {error}.")
    try:
        process = subprocess.Popen(
            [*COMMAND, str(run.folder)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=run.folder,
            env=clean_environment(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return say(f"The push could not be started: {error}.")
    finally:
        os.close(output)
    while process.poll() is None and not is_terminated():
        time.sleep(POLL_SECONDS)
    if process.poll() is None:
        _end(process)
    if process.returncode < 0:
        _end_group(process)
    if process.returncode:
        say(f"The push has failed (exit code {process.returncode}): `ftui push {run.name}` goes on.")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_SECONDS)
    _end_group(process)
    process.wait()


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """The command that it ran, and the children of that."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
