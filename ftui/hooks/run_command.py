"""Runs one command of a user's: no shell, a session of its own, a time limit, its output in our log."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ftui import units
from ftui.supervisor.engine_process import clean_environment, signal_name
from ftui.system.variables import expand

MOST_OUTPUT = 1 << 20  # bytes of one command that are kept
AFTER_SECONDS = 1.0  # for its last lines; what it left running in the background may hold the pipe for ever


def run_command(words: Sequence[str], variables: Mapping[str, str], folder: Path, seconds: float) -> str:
    """Run it in `folder`, for `seconds` at most; returns what went wrong, in words, or nothing.

    `variables` are added to its environment, and `$NAME` in `words` is replaced.
    """
    environment = {**clean_environment(), **variables}
    try:
        command = expand(words, environment)
    except KeyError as error:
        return f"was not run: there is no environment variable {error.args[0]}"
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
            env=environment, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"could not be started: {error}"
    assert process.stdout is not None, "it is a pipe"
    reader = threading.Thread(target=_copy, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was ended after {units.duration(seconds)}"
    finally:
        reader.join(AFTER_SECONDS)
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"ended with exit code {code}" if code else ""


def _copy(output: IO[bytes]) -> None:
    """Into our own output, which is a redacted log."""
    left = MOST_OUTPUT
    with output:
        for line in output:
            if left > 0:
                print(line.decode(errors="backslashreplace").rstrip("\r\n"), flush=True)
            left -= len(line)
