"""When an engine stands still: its count of finished work does not move for far longer than it ever took before.

Only time in which the engine could have worked counts: a machine that slept, a stopped engine or a stopped supervisor
give no alarm.
"""

from collections import deque

from ftui.runs.records.record import Phase
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.records.supervisor_records import Stalled
from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, read_json

PATIENCE_SECONDS = 30 * 60.0  # how long anything may take whose pace is not known
TIMES_THE_MEDIAN = 20
FEWEST_INTERVALS = 5
INTERVALS_KEPT = 101
LONGEST_LOOK = 2.0  # ticks: more time between two looks was spent asleep
UNEVEN: frozenset[Phase] = frozenset({"starting", "preparing", "loading", "scoring", "saving"})
"""Phases in which one unit of work says nothing about the next."""


def read_beat(run: Run) -> Beat | None:
    """The engine's last sign of life; `None` before its first, or where it cannot be read."""
    try:
        return read_json(run.beat, Beat)
    except (OSError, *DAMAGED):
        return None


class StallDetector:
    """Judges one attempt from looks at its beat. `floor` is in seconds, `None` for never."""

    def __init__(self, floor: float | None, *, token: str, tick: float, patience: float = PATIENCE_SECONDS) -> None:
        self._floor = floor
        self._token = token
        self._longest_look = LONGEST_LOOK * tick
        self._patience = patience
        self._last: Beat | None = None
        self._still_seconds = 0.0
        self._intervals: dict[Phase, deque[float]] = {}

    def look(self, beat: Beat | None, elapsed: float, *, stopped: bool = False) -> Stalled | None:
        """One look, `elapsed` seconds after the one before; the stall, once it is one."""
        if beat is None or (self._token and beat.token != self._token):
            return None
        if self._last is None or beat.progress != self._last.progress or beat.phase != self._last.phase:
            self._moved(beat, elapsed)
            return None
        if not stopped:
            self._still_seconds += min(elapsed, self._longest_look)
        limit = self.limit(beat.phase)
        if limit is None or self._still_seconds <= limit:
            return None
        return Stalled(phase=beat.phase, seconds=self._still_seconds, limit_seconds=limit)

    def _moved(self, beat: Beat, elapsed: float) -> None:
        if self._last is not None and beat.phase == self._last.phase:
            intervals = self._intervals.setdefault(beat.phase, deque(maxlen=INTERVALS_KEPT))
            intervals.append(self._still_seconds + min(elapsed, self._longest_look))
        self._last = beat
        self._still_seconds = 0.0

    def limit(self, phase: Phase) -> float | None:
        """Seconds that this phase may stand still, by its own pace; `None` for as long as it likes."""
        if self._floor is None or phase == "held":
            return None
        intervals = self._intervals.get(phase, ())
        if phase in UNEVEN or len(intervals) < FEWEST_INTERVALS:
            return max(self._floor, self._patience)
        median = sorted(intervals)[len(intervals) // 2]
        return max(self._floor, TIMES_THE_MEDIAN * median)
