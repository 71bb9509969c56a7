"""How a run's `hooks.then_stop` stands: a pure fold of its records, and the words for it."""

import time
from typing import Literal

import msgspec

from ftui.runs.records.hook_records import StopBegan, StopCancelled, StopEnded, StopPlanned, StopRecord, StopWaits


class MachineStop(msgspec.Struct, frozen=True):
    """The newest word on it. `at`: when the command runs (Unix seconds), once that is planned."""

    phase: Literal["waits", "planned", "cancelled", "began", "ended"]
    attempt: int
    at: float = 0.0
    reason: str = ""
    """Why it waits or is cancelled, or what went wrong."""

    def seconds_left(self, now: float) -> float | None:
        """Until the command runs, while people may still cancel it."""
        return max(0.0, self.at - now) if self.phase == "planned" else None

    def words(self) -> str:
        """One line for people."""
        match self.phase:
            case "waits":
                return f"waits: {self.reason}"
            case "planned":
                return f"this machine is stopped at {time.strftime('%H:%M:%S', time.localtime(self.at))}"
            case "cancelled":
                return f"the machine stays: {self.reason}"
            case "began":
                return "the command that stops this machine runs"
        return f"failed: {self.reason}" if self.reason else "the command has run"


def fold_stop(record: StopRecord) -> MachineStop:
    """How it stands after one more record."""
    match record:
        case StopWaits():
            return MachineStop("waits", record.attempt, reason=record.reason)
        case StopPlanned():
            return MachineStop("planned", record.attempt, at=record.at)
        case StopCancelled():
            return MachineStop("cancelled", record.attempt, reason=record.reason)
        case StopBegan():
            return MachineStop("began", record.attempt)
        case StopEnded():
            return MachineStop("ended", record.attempt, reason=record.problem)
