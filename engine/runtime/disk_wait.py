"""A run whose disk is full: it pauses, says what could be deleted, tries again, and parks in the end."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ftui.errors import DiskError, DiskFullError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import checkpoints_in, total_size
from ftui.runs.run_folder import Run
from ftui.units import size

from .control_flags import Control, RequestLevel, Shutdown
from .event_writer import EventWriter

RETRY_SECONDS = 5.0
LOOK_SECONDS = 0.05

T = TypeVar("T")


class DiskWait:
    """Waits up to `max_hold_minutes` for space, counted from the first refusal after a success."""

    def __init__(self, run: Run, events: EventWriter, control: Control, max_hold_minutes: float) -> None:
        self._run = run
        self._events = events
        self._control = control
        self._patience = max_hold_minutes * 60
        self._since: float | None = None
        events.disk_wait = self

    def retry(self, act: Callable[[], T]) -> T:
        """Do it, however often the disk is full meanwhile.

        Raises:
            Shutdown: the disk stayed full for too long, or a request ended the run while it waited.
            DiskFullError: the attempt is being left.
        """
        while True:
            try:
                result = act()
            except DiskFullError as error:
                self.wait(error)
                continue
            self.end_wait()
            return result

    def wait(self, error: DiskError) -> None:
        """Pause until another try is worth it; an attempt that is being left has no time for that.

        Raises:
            DiskError: `error`, in an attempt that is being left.
            Shutdown: it took too long, or a request ended the run.
        """
        if self._events.is_shutting_down:
            raise error
        if self._since is None:
            self._since = time.monotonic()
            self._say(error)
        retry = time.monotonic() + min(RETRY_SECONDS, self._patience)
        while time.monotonic() < retry:
            self._control.poll(RequestLevel.FILES)  # a request that deletes a checkpoint may be what makes the room
            self._events.progress()
            time.sleep(LOOK_SECONDS)
        if time.monotonic() - self._since >= self._patience and self._has_checkpoint():
            raise Shutdown("full")

    def end_wait(self) -> None:
        """End the pause: there is space again. The reserve is made anew as soon as it fits, too."""
        if self._since is not None:
            self._since = None
            self._events.leave()
        with contextlib.suppress(DiskFullError):
            self._events.make_reserve()

    def _say(self, error: DiskError) -> None:
        """To the journal, into the room that the reserve gave back; and to engine.log, which may be elsewhere."""
        detail = " ".join([error.message, *deletable(self._run)])
        print(detail, flush=True)
        with contextlib.suppress(DiskFullError):  # not even that: status.json and beat.json stay as they are
            self._events.disk_wait = None
            self._events.enter("held", detail)
        self._events.disk_wait = self

    def _has_checkpoint(self) -> bool:
        return any(checkpoint_folders.fault(c.path, quick=True) is None for c in checkpoints_in(self._run.checkpoints))


def deletable(run: Run) -> list[str]:
    """Sentences that name what could be deleted from this run; never the newest checkpoint."""
    sentences = [
        f"`ftui delete {run.name} {c.path.name}` frees {size(total_size(c.path))}."
        for c in checkpoints_in(run.checkpoints)[1:]
    ]
    for folder in (run.superseded, run.quarantine):
        if folder.is_dir() and (room := total_size(folder)):
            sentences.append(f"{Path(folder.parent.name) / folder.name} takes {size(room)}.")
    return sentences
