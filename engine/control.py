"""What the world outside asks of the engine. A handler only sets a flag; the work looks at it between its units."""

import signal
from types import FrameType


class Preempted(Exception):
    """SIGTERM arrived: save if there is time, then leave. Raised only between units of work."""


class Control:
    """The flags. `poll()` is called between micro-batches, evaluation batches and batches of rows being prepared."""

    def __init__(self) -> None:
        self._terminated = False

    def listen(self) -> None:
        """SIGTERM sets the flag; the terminal's SIGHUP and SIGINT are none of the engine's business."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True

    def poll(self) -> None:
        """Raises `Preempted` once SIGTERM has arrived."""
        if self._terminated:
            raise Preempted
