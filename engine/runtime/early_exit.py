"""How an attempt ends that has not begun to train. Imports nothing heavy: the libraries may not be there yet."""

from ftui.errors import PARKED, PREEMPTED_NOT_SAVED, STOPPED, DiskError
from ftui.runs.events import RunStopped

from .control_flags import Leave, Why
from .event_writer import Logbook

UNTRAINED: dict[Why, tuple[int, str]] = {
    "preempted": (PREEMPTED_NOT_SAVED, "pre-empted (SIGTERM) before training began"),
    "park": (PARKED, "parked before training began"),
    "stop": (STOPPED, "stopped before training began"),
    "abort": (STOPPED, "aborted before training began"),
    "full": (DiskError.exit_code, "the disk is full"),
}


def leave_untrained(logbook: Logbook, leaving: Leave) -> int:
    """The end of an attempt that has not begun to train."""
    code, reason = UNTRAINED[leaving.why]
    logbook.is_leaving = True
    logbook.event(RunStopped(step=logbook.num_steps, reason=reason, exit_code=code), durable=True)
    return code
