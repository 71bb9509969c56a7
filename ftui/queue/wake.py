"""Starts the dispatcher of each queue that has something to do and none: every command of ftui does."""

import os
import subprocess
import sys
from pathlib import Path

from ftui.queue.queue_files import QueueFiles, all_queues
from ftui.supervisor.spawn import child_environment
from ftui.system.files import Lock, open_private, try_lock

COMMAND = [sys.executable, "-P", "-m", "ftui.queue"]


def wake_dispatchers() -> None:
    """Look at every queue that is known here.

    Raises:
        OSError: a queue cannot be read, or no dispatcher started for it; the others have been looked at.
    """
    problem: OSError | None = None
    for files in all_queues():
        try:
            wake(files)
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem


def wake(files: QueueFiles) -> "subprocess.Popen[bytes] | None":
    """Start the queue's dispatcher, which outlives this process and its terminal, if it is needed and there is none."""
    if not files.read().is_at_work or (lock := try_lock(files.dispatcher_lock)) is None:
        return None
    return start_holding(lock, [*COMMAND, str(files.root)], files.dispatcher_log, files.root)


def start_holding(lock: Lock, command: list[str], log_path: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that outlives this one; it is handed `lock`, whose descriptor is its last argument.

    Raises:
        OSError: its log cannot be opened, or no process be had; the lock is free again.
    """
    try:
        log = open_private(log_path, os.O_WRONLY | os.O_APPEND)
        try:
            return subprocess.Popen(
                [*command, str(lock.descriptor)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock.descriptor,), cwd=folder,
                env=child_environment(), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
    finally:
        os.close(lock.descriptor)  # the process has its own copy
