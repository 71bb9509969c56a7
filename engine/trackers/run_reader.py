"""What a run's files hold that a tracker was not given yet.

History is one line: when an attempt begins from step s, what earlier ones did above s no longer counts. What was
handed on of it is taken back by a tracker that can forget; the others get each step once, as it was first taken.
"""

import math

from ftui.errors import DiskError
from ftui.runs.events import AnyRecord, EvaluationDone, RunFailed, RunFinished, RunStarted, RunStopped, Sampled, Step
from ftui.runs.journal import Tail
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.run_folder import Run

from .position import Position

PIECE = 1 << 20  # bytes of metrics.jsonl and telemetry.jsonl read at a time
HARDWARE_SECONDS = 10.0  # between two samples that are handed on

Point = Step | EvaluationDone | Sampled | HealthAlarm


class RunReader:
    """Reads on from `position` and moves it along; whoever hands the news on stores it."""

    def __init__(self, run: Run, position: Position) -> None:
        self._position = position
        self._metrics = Tail(run.metrics, position.metrics)
        self._journal = Tail(run.journal, position.journal)
        self._telemetry = Tail(run.telemetry, position.telemetry)
        self._supervisor = Tail(run.supervisor_log, position.supervisor)
        self.has_moved = True
        """Whether the last look found anything to read."""

    def look(self) -> tuple[int | None, list[Point], list[Telemetry]]:
        """The step that the run went back to, if it did; then what is new, by step, and what the hardware did."""
        before = self._offsets()
        steps = self._metrics.read(PIECE)
        events = self._journal.read()  # the second: whatever a step builds on was in the journal before it
        alarms = [record for record in self._supervisor.read() if isinstance(record, HealthAlarm)]
        hardware = [record for record in self._telemetry.read(PIECE) if isinstance(record, Telemetry)]
        position = self._position
        position.metrics, position.journal, position.telemetry, position.supervisor = self._offsets()
        self.has_moved = self._offsets() != before
        back_to = self._begin([*events, *steps])
        points = sorted(
            (r for r in [*steps, *events, *alarms] if isinstance(r, Point) and self._counts(r)),
            key=lambda r: (r.step, not isinstance(r, Step)),
        )
        for record in events:
            if isinstance(record, RunFinished | RunStopped | RunFailed):
                position.ended_badly = isinstance(record, RunFailed) and record.exit_code != DiskError.exit_code
        return back_to, points, self._thin_out(hardware)

    def _offsets(self) -> tuple[int, int, int, int]:
        return self._metrics.offset, self._journal.offset, self._telemetry.offset, self._supervisor.offset

    def _begin(self, records: list[AnyRecord]) -> int | None:
        """Note where attempts begin; returns the lowest of these steps that lies below what was handed on."""
        position, back_to = self._position, None
        for record in records:
            match record:
                case RunStarted():
                    start = record.start_step
                case Step():
                    start = record.step - 1
                case _:
                    continue
            if record.attempt in position.starts:
                continue
            position.starts[record.attempt] = start
            if max(position.step, position.evaluated, position.sampled) > start:
                back_to = start if back_to is None else min(back_to, start)
        return back_to

    def _counts(self, record: Point) -> bool:
        """Whether no later attempt began below it."""
        later = (start for attempt, start in self._position.starts.items() if attempt > record.attempt)
        return record.step <= min(later, default=math.inf)

    def _thin_out(self, hardware: list[Telemetry]) -> list[Telemetry]:
        """Now and then a sample; the clock may have been set meanwhile."""
        due_samples = []
        for sample in hardware:
            if abs(sample.time - self._position.hardware_time) >= HARDWARE_SECONDS:
                self._position.hardware_time = sample.time
                due_samples.append(sample)
        return due_samples


def rewind(position: Position, step: int) -> None:
    """Note that a tracker has dropped all above `step`, so that it is given again."""
    position.step = min(position.step, step)
    position.evaluated = min(position.evaluated, step)
    if position.sampled > step:
        position.sampled, position.prompts = step, []


def take_if_new(position: Position, record: Point) -> bool:
    """Whether a tracker does not have this yet; from now on it has."""
    match record:
        case Step():
            new, position.step = record.step > position.step, max(position.step, record.step)
        case EvaluationDone():
            new, position.evaluated = record.step > position.evaluated, max(position.evaluated, record.step)
        case Sampled():
            if record.step > position.sampled:
                position.sampled, position.prompts = record.step, []
            new = record.step == position.sampled and record.prompt not in position.prompts
            if new:
                position.prompts.append(record.prompt)
        case HealthAlarm():
            new = True  # each stands in its file once
    return new
