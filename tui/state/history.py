"""What happened in a run, from its journal, its supervisor's and its pushes: marks for a chart, events in plain words.

The state (`ftui.runs.state`) remembers the newest few of each; a chart wants them all. Everything here is bounded.
"""

import heapq
import re
from collections import deque

import msgspec

from ftui.errors import FINISHED, PARKED, STOPPED, DiskError
from ftui.measures import leading_measure
from ftui.runs.events import (
    AnyRecord,
    CheckpointRejected,
    CheckpointSaved,
    ControlApplied,
    ControlRefused,
    EvaluationDone,
    MicroBatchChanged,
    Noted,
    PhaseChanged,
    RunFailed,
    RunFinished,
    RunOpened,
    RunStarted,
    RunStopped,
    StageBegan,
    Step,
    Warned,
)
from ftui.runs.journal import Tail
from ftui.runs.records import record_lines
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.hook_records import JOURNAL
from ftui.runs.records.push_records import Pushed, PushFailed
from ftui.runs.records.supervisor_records import EngineEnded, Restarting, Stalled
from ftui.runs.run_folder import Run

from .origin import read_origin

PIECE = 1 << 20  # bytes read of each file at a time
EVENTS_KEPT = 500
FIGURE = re.compile(r"\d")
MARKS_KEPT = 4096  # evaluations; a chart has a few hundred columns

TONES: dict[type, str] = {
    EvaluationDone: "eval", CheckpointSaved: "good", CheckpointRejected: "bad", Warned: "warn", Noted: "eval",
    MicroBatchChanged: "warn",
    RunFailed: "bad", Stalled: "bad", Restarting: "warn", ControlApplied: "loss", ControlRefused: "warn",
    RunFinished: "good", RunStopped: "good", EngineEnded: "bad",
    Pushed: "good", PushFailed: "bad",
}  # fmt: skip
"""The style of each kind of event; the others are plain text."""


EXPECTED = (FINISHED, STOPPED, PARKED)
"""Exit codes of engines that ended because they were to."""


ENDS = (EngineEnded, RunFailed, RunFinished, RunStopped)


class Event(msgspec.Struct, frozen=True):
    """`is_end`: it tells that the run, or its process, has ended."""

    time: float
    text: str
    tone: str
    is_end: bool = False


class EvaluationMark(msgspec.Struct, frozen=True):
    """An evaluation: its step, its loss (`None`: not finite), whether it was the best so far (no extra one is), and its
    other measures."""

    step: int
    loss: float | None
    is_best: bool
    extras: dict[str, float | None] = {}

    @property
    def is_bad(self) -> bool:
        """Whether its loss was not finite."""
        return leading_measure(self) == ("loss", None)

    def value(self, measure: str) -> float | None:
        """Its loss, or another measure."""
        return self.loss if measure == "loss" else self.extras.get(measure)


class AttemptStart(msgspec.Struct, frozen=True):
    """An attempt after the first, and the step it resumed from."""

    attempt: int
    step: int


class History:
    """Follows the rare records of a run; `look` takes in one more piece."""

    def __init__(self, run: Run) -> None:
        self._tails = (
            Tail(run.journal), Tail(run.supervisor_log), Tail(run.pushes), Tail(run.hooks / JOURNAL),
        )  # fmt: skip
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.evaluations: list[EvaluationMark] = []
        self.attempt_starts: list[AttemptStart] = []
        self.plan: RunStarted | None = None
        self.stages: dict[int, int] = {}
        """Of a curriculum: the last step before each stage, by its number; without the first where runs are older."""
        self.ended: EngineEnded | None = None
        self.origin = read_origin(run)

    def look(self) -> list[AnyRecord]:
        """Take in what is new, at most a piece, and return it."""
        batches = [tail.read(PIECE) for tail in self._tails]
        records = list(heapq.merge(*batches, key=lambda record: record.time))
        for record in records:
            self.take(record)
        return records

    def take(self, record: AnyRecord) -> None:
        match record:
            case RunStarted():
                self._begin(record)
            case EvaluationDone() if record.is_measured:
                self._mark(record)
                if len(self.evaluations) > MARKS_KEPT:
                    best = self.best
                    self.evaluations = [m for i, m in enumerate(self.evaluations) if i % 2 or m is best]
            case StageBegan() if record.number > 1:
                self.stages[record.number] = record.step - 1
            case RunOpened():
                self.ended = None
            case EngineEnded():
                self.ended = record
        texts = event_texts(record)
        if texts and self._goes_on(record, texts[0]):
            self.events.pop()
        for text in texts:
            self.events.append(Event(record.time, text, tone_of(record), isinstance(record, ENDS)))

    def _goes_on(self, record: AnyRecord, text: str) -> bool:
        """Whether this says how far the newest event is by now: the same words up to the first number."""
        is_progress = isinstance(record, PhaseChanged) and record.detail and record.phase in ("preparing", "loading")
        newest = self.events[-1].text if self.events else ""
        return bool(is_progress and newest) and text.startswith(FIGURE.split(newest)[0].rstrip(" ·"))

    def _mark(self, record: EvaluationDone) -> None:
        """A mark for each step; an extra evaluation does not replace one of the plan."""
        last = self.evaluations[-1] if self.evaluations else None
        if last is not None and last.step == record.step:
            if record.requested:
                return
            self.evaluations.pop()
        self.evaluations.append(
            EvaluationMark(record.step, record.loss, record.best and not record.requested, record.extras)
        )

    def _begin(self, record: RunStarted) -> None:
        """What earlier attempts did above its first step counts no more."""
        self.plan = record
        self.stages |= {number: first - 1 for number, first in enumerate(record.stages, 1)}
        self.evaluations = [mark for mark in self.evaluations if mark.step <= record.start_step]
        self.attempt_starts = [begin for begin in self.attempt_starts if begin.step < record.start_step]
        if record.start_step > 0:
            self.attempt_starts.append(AttemptStart(record.attempt, record.start_step))

    @property
    def last_words(self) -> str:
        """The newest event before the end: what it was doing. The end itself is told elsewhere.

        Of an event of several lines it is the first: the others are indented.
        """
        newest = (event.text for event in reversed(self.events) if not event.is_end and event.text[:1] != " ")
        return next(newest, "")

    @property
    def best(self) -> EvaluationMark | None:
        """The last one that was the best so far."""
        return next((mark for mark in reversed(self.evaluations) if mark.is_best), None)


def tone_of(record: AnyRecord) -> str:
    """The style of an event."""
    if isinstance(record, EngineEnded) and record.code in EXPECTED:
        return "muted"
    if isinstance(record, HealthAlarm):
        return "bad" if record.level == "red" else "warn"
    return TONES.get(type(record), "text")


def event_texts(record: AnyRecord) -> list[str]:
    """The lines a record is worth among the events; it may have none."""
    match record:
        case Step():
            return []
        case PhaseChanged():
            return (
                []
                if record.phase in ("generating", "scoring", "evaluating", "saving")
                else record_lines.phase_line(record)
            )
        case RunFailed():
            word = "parked" if record.exit_code == DiskError.exit_code else "failed"
            return record_lines.lines_of(f"{word}: {record.message}")
        case RunStopped() | RunFinished():
            return [f"ended at step {record.step}: {record.reason}"]
        case EngineEnded():
            how = record.signal or (f"exit code {record.code}" if record.code is not None else "exit code unknown")
            return [f"the engine's process ended ({how})"]
        case _:
            return record_lines.event_lines(record)
