"""All the engine writes about itself: the journal, one metrics line a step, and the beat that shows it lives."""

import time

import msgspec

from ftui.events import Beat, JournalRecord, Phase, PhaseChanged, Step, Warned
from ftui.files import replace_file
from ftui.journal import Writer
from ftui.run import Run

BEAT_SECONDS = 1.0


class Logbook:
    """The one writer of journal.jsonl, metrics.jsonl and beat.json."""

    def __init__(self, run: Run, *, attempt: int, token: str) -> None:
        self.attempt = attempt
        self.token = token
        self._run = run
        self._journal = Writer(run.journal, attempt=attempt, token=token)
        self._metrics = Writer(run.metrics, attempt=attempt, token=token)
        self._phase: Phase = "starting"
        self._step = 0
        self._progress = 0
        self._last_beat = 0.0

    def event(self, record: JournalRecord, *, durable: bool = False) -> None:
        self._journal.write(record, durable=durable)

    def step(self, record: Step) -> None:
        self._metrics.write(record)

    def warn(self, message: str) -> None:
        self.event(Warned(message=message))

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Enter a phase (or tell more about it); a phase that goes on is written only with a new detail."""
        if phase != self._phase or detail:
            self.event(PhaseChanged(phase=phase, detail=detail))
        self._phase = phase
        self.progress()

    def progress(self, *, step: int | None = None, micro_step: int = 0, detail: str = "") -> None:
        """Count one unit of work in whatever phase; at most once a second it also reaches beat.json.

        A `detail` (rows read, bytes loaded) goes with the beat to the journal, so that a reader can show it.
        """
        self._progress += 1
        self._step = self._step if step is None else step
        now = time.monotonic()
        if now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            beat = Beat(
                time=time.time(),
                attempt=self.attempt,
                token=self.token,
                phase=self._phase,
                step=self._step,
                micro_step=micro_step,
                progress=self._progress,
            )
            replace_file(self._run.beat, msgspec.json.encode(beat))
            if detail:
                self.event(PhaseChanged(phase=self._phase, detail=detail))
