"""What the hooks of a run write, and the command that stops its machine at the end (`hooks.then_stop`).

Written to hooks/journal.jsonl by the holder of hooks/lock, each before what it tells of begins: nothing runs twice,
whoever is killed in between. `attempt` is the one that the event belongs to.
"""

from ftui.runs.records.record import Record

HOOK_EVENTS = ("started", "checkpoint", "evaluated", "ended", "failed")
JOURNAL = "journal.jsonl"  # in the run's folder `hooks`


class HookBegan(Record, frozen=True, tag="hook_began"):
    """The command of `event` (started, checkpoint, evaluated, ended, failed) at `step` is about to run."""

    event: str
    step: int
    command: list[str]


class HookEnded(Record, frozen=True, tag="hook_ended"):
    """It has ended; `problem` says what went wrong, where something did."""

    event: str
    step: int
    seconds: float
    problem: str = ""


class StopWaits(Record, frozen=True, tag="stop_waits"):
    """The machine is not stopped yet, since `reason`."""

    reason: str


class StopPlanned(Record, frozen=True, tag="stop_planned"):
    """The machine is stopped at `at` (Unix seconds), unless somebody keeps it."""

    at: float
    command: list[str]


class StopCancelled(Record, frozen=True, tag="stop_cancelled"):
    """The machine is not stopped, for `reason`."""

    reason: str


class StopBegan(Record, frozen=True, tag="stop_began"):
    """The command that stops the machine is about to run."""

    command: list[str]


class StopEnded(Record, frozen=True, tag="stop_ended"):
    """That command has ended, and this machine is still there."""

    problem: str = ""


StopRecord = StopWaits | StopPlanned | StopCancelled | StopBegan | StopEnded
HookRecord = HookBegan | HookEnded | StopRecord
