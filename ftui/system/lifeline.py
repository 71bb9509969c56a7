"""A pipe by which a process learns that whoever started it has ended: it then leaves in time, even from a hang."""

import faulthandler
import os
import threading
import time
from pathlib import Path

from ftui.system.files import Lock, try_lock

POLL_SECONDS = 1.0
LEFT_SECONDS = 30.0  # how long such a process may continue after that
HANGING_SECONDS = 600.0  # without a sign of life it is ended even before


class Lifeline:
    """Notices when the other end of the pipe is closed, and sees that this process ends in time."""

    def __init__(self, descriptor: int, *, left_seconds: float | None) -> None:
        """`left_seconds`: `None` where this process leaves by itself, and never hangs."""
        os.set_inheritable(descriptor, False)
        self._left_seconds = left_seconds
        self._ended = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._hold, args=(descriptor,), daemon=True).start()

    def _hold(self, descriptor: int) -> None:
        os.read(descriptor, 1)  # nothing is ever written to it
        with self._lock:
            self._ended.set()
            if self._left_seconds is not None:
                faulthandler.dump_traceback_later(self._left_seconds, exit=True)

    def report_alive(self) -> None:
        """A sign of life."""
        with self._lock:
            if not self._ended.is_set():
                faulthandler.dump_traceback_later(HANGING_SECONDS, exit=True)

    def has_ended(self, wait: float = 0.0) -> bool:
        """Whether the other end is closed, after at most `wait` seconds."""
        return self._ended.wait(wait)


def wait_for_predecessor(path: Path) -> Lock:
    """The lock of a process of which there is one a run: an earlier one may still be about to end."""
    while (lock := try_lock(path)) is None:
        time.sleep(POLL_SECONDS)
    return lock
