"""Starts the dispatcher of each queue that has something to do and none: every command of ftui does."""

import os
import subprocess
import sys

from ftui.queue.queue_files import QueueFiles, all_queues
from ftui.supervisor.spawn import child_environment
from ftui.system.files import open_private, try_lock

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
    try:
        log = open_private(files.dispatcher_log, os.O_WRONLY | os.O_APPEND)
        try:
            return subprocess.Popen(
                [*COMMAND, str(files.root), str(lock.descriptor)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock.descriptor,), cwd=files.root,
                env=child_environment(), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
    finally:
        os.close(lock.descriptor)  # the dispatcher has its own copy
