"""What becomes of a run when the disk is full: it holds, says what could be deleted, tries again, parks in the end."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ftui.errors import DiskError, DiskFullError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import listed, total_size
from ftui.runs.run_folder import Run
from ftui.units import size

from .control_flags import Control, Leave, Ready
from .event_writer import Logbook

RETRY_SECONDS = 5.0
LOOK_SECONDS = 0.05

T = TypeVar("T")


class Space:
    """The patience of one run: `max_hold_minutes` of waiting for room, counted anew after each success."""

    def __init__(self, run: Run, logbook: Logbook, control: Control, max_hold_minutes: float) -> None:
        self._run = run
        self._logbook = logbook
        self._control = control
        self._patience = max_hold_minutes * 60
        self._since: float | None = None
        logbook.patience = self

    def insist(self, act: Callable[[], T]) -> T:
        """Do it, however often the disk is full meanwhile.

        Raises:
            Leave: the disk stayed full for too long, or the run was told to go while it waited.
            DiskFullError: the attempt is being left.
        """
        while True:
            try:
                result = act()
            except DiskFullError as error:
                self.wait(error)
                continue
            self.recovered()
            return result

    def wait(self, error: DiskError) -> None:
        """Hold until another try is worth it; an attempt that is being left has no time for that.

        Raises:
            DiskError: `error`, in an attempt that is being left.
            Leave: it took too long, or the run was told to go.
        """
        if self._logbook.is_leaving:
            raise error
        if self._since is None:
            self._since = time.monotonic()
            self._say(error)
        retry = time.monotonic() + min(RETRY_SECONDS, self._patience)
        while time.monotonic() < retry:
            self._control.poll(Ready.FILES)  # a letter that deletes a checkpoint may be what makes the room
            self._logbook.progress()
            time.sleep(LOOK_SECONDS)
        if time.monotonic() - self._since >= self._patience and self._has_checkpoint():
            raise Leave("full")

    def recovered(self) -> None:
        """There was room: what was waited for has been done. The reserve comes back as soon as it has room, too."""
        if self._since is not None:
            self._since = None
            self._logbook.back()
        with contextlib.suppress(DiskFullError):
            self._logbook.make_reserve()

    def _say(self, error: DiskError) -> None:
        """To the journal, into the room that the reserve gave back; and to engine.log, which may be elsewhere."""
        detail = " ".join([error.message, *deletable(self._run)])
        print(detail, flush=True)
        with contextlib.suppress(DiskFullError):  # not even that: status.json and beat.json stay as they are
            self._logbook.patience = None
            self._logbook.enter("held", detail)
        self._logbook.patience = self

    def _has_checkpoint(self) -> bool:
        return any(checkpoint_folders.fault(c.path, quick=True) is None for c in listed(self._run.checkpoints))


def deletable(run: Run) -> list[str]:
    """What in this run could go, each a sentence; the newest checkpoint never is among it."""
    found = [
        f"`ftui delete {run.name} {c.path.name}` frees {size(total_size(c.path))}." for c in listed(run.checkpoints)[1:]
    ]
    for folder in (run.superseded, run.checkpoints / "quarantine"):
        if folder.is_dir() and (room := total_size(folder)):
            found.append(f"{Path(folder.parent.name) / folder.name} holds {size(room)}.")
    return found
