"""Starts the supervisor of a run: for a run that begins, and for an engine that has lost its own."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ftui.runs.run_folder import Run
from ftui.runs.status import Status
from ftui.system.files import Lock, UnsafePathError, open_private, try_lock

if TYPE_CHECKING:
    import subprocess

COMMAND = [sys.executable, "-P", "-m", "ftui.supervisor"]
FOLDERS = ("FTUI_CACHE", "FTUI_RUNS", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "XDG_CACHE_HOME")
"""Variables that name folders, which may be relative to where somebody stands."""


def launch(run: Run, lock: Lock | None = None, cards: Sequence[Lock] = ()) -> "subprocess.Popen[bytes]":
    """Start a supervisor that outlives this process and its terminal, and hand it the lock and those of its cards.

    Its own troubles go to supervisor.log.
    """
    import subprocess  # 3 ms: every command asks for a supervisor, and hardly any has to start one

    log = open_private(run.supervisor_output, os.O_WRONLY | os.O_APPEND)
    command = [*COMMAND, str(run.folder)]
    descriptors = () if lock is None else tuple(one.descriptor for one in (lock, *cards))
    try:
        return subprocess.Popen(
            [*command, *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            pass_fds=descriptors,
            cwd=run.folder,
            env=child_environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)


def child_environment() -> dict[str, str]:
    """This process's, with the names of folders whole: the supervisor works in the run's folder."""
    return {name: os.path.abspath(value) if name in FOLDERS and value else value for name, value in os.environ.items()}


def ensure_supervised(run: Run, status: Status) -> Status:
    """The status of a run whose engine has a supervisor: one is started for an engine that lost its own."""
    try:
        if status.unwatched and (lock := try_lock(run.supervisor_lock)) is not None:
            try:
                launch(run, lock)
            finally:
                os.close(lock.descriptor)
    except UnsafePathError as error:  # one bad folder is no reason to show none of the others
        return msgspec.structs.replace(status, unreadable=error.message)
    return status
