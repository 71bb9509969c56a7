"""What a supervisor writes of its engine."""

from ftui.runs.records.record import Phase, Record
from ftui.system.process_id import Identity


class EngineStarted(Record, frozen=True, tag="engine_started"):
    """The supervisor started the engine; of several ranks `identity` is rank 0.

    `seen_before`: when the attempt before this one was last seen alive (Unix seconds), where no record tells its end.
    """

    identity: Identity
    seen_before: float | None = None


class Adopted(Record, frozen=True, tag="adopted"):
    """A new supervisor watches an engine that an earlier one started."""

    identity: Identity


class Stalled(Record, frozen=True, tag="stalled"):
    """No unit of work was finished for `seconds`; `limit_seconds` is how long the phase may stand still."""

    phase: Phase
    seconds: float
    limit_seconds: float


class EngineEnded(Record, frozen=True, tag="engine_ended"):
    """How the engine's process ended: its exit code, or the signal that killed it, and the last lines it printed.

    Both are `None` for an adopted engine: only its parent could have asked. `engine_memory`, `memory_total`: bytes it
    held when last looked at, and bytes there are. `lost_node`: whose absence ended it, or (code 11) the wait for it.
    """

    code: int | None
    signal: str | None
    oom_kills: int | None
    last_lines: list[str]
    engine_memory: int | None = None
    memory_total: int | None = None
    stalled: bool = False
    lost_node: str = ""


class Restarting(Record, frozen=True, tag="restarting"):
    """Another attempt begins after a pause (none: a node was lost, which is no restart) for `error` at `step`."""

    step: int
    error: str
    number: int
    pause_seconds: float
