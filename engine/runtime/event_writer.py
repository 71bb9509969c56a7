"""All the engine writes about itself: the journal, one metrics line a step, and the beat that shows it is running."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from ftui.errors import DiskError, DiskFullError, LostRunError
from ftui.runs.events import CheckpointSaved, JournalRecord, Noted, PhaseChanged, Step, Warned
from ftui.runs.journal import Writer
from ftui.runs.records.record import Phase, Record
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.run_folder import Run
from ftui.system.files import Lock, open_private, replace_file, try_lock
from ftui.system.redact import redact_value
from ftui.system.volume import disk_error, make_reserve, release_reserve

from ..ledger.ledger_file import LedgerWriter, rewind

if TYPE_CHECKING:
    from .disk_wait import DiskWait

BEAT_SECONDS = 1.0
TEXTS = ("message", "hint", "error", "detail", "reason")  # of a record, where a library's words may stand
SEGMENT_BYTES = 16 << 20  # of metrics.jsonl, about 30,000 steps, or of the journal; what is older is compressed
LONGEST_LOG = 8 << 20  # bytes of engine.log; as much again stands in engine.log.1


class EventWriter:
    """The only writer of journal.jsonl, metrics.jsonl and beat.json; it also limits the length of engine.log.

    `disk_wait` waits when the disk has no room for a record. With `is_silent` nothing is written: only rank 0 writes.
    """

    def __init__(self, run: Run, *, attempt: int, token: str, is_silent: bool = False) -> None:
        self.attempt = attempt
        self.token = token
        self.num_steps = 0
        """Finished steps."""
        self.step_seconds = self.save_seconds = 0.0
        """How long the last step and the last save took; 0 before the first."""
        self.disk_wait: DiskWait | None = None
        self.lock: Lock | None = None
        """What makes this process the only writer."""
        self.is_shutting_down = False
        """A record that the disk does not take is then dropped: the exit code still says how the attempt ended."""
        self._run = run
        self._is_silent = is_silent
        if not is_silent:
            self._journal = Writer(run.journal, attempt=attempt, token=token, longest=SEGMENT_BYTES)
            self._metrics = Writer(run.metrics, attempt=attempt, token=token, longest=SEGMENT_BYTES)
        self._phase: Phase = "starting"
        self._outer_phases: list[Phase] = []
        self._ledger: LedgerWriter | None = None
        self._progress = 0
        self._last_beat = 0.0

    def write(self, record: JournalRecord, *, durable: bool = False) -> None:
        """Append to the journal; a `durable` record is on the disk when this returns."""
        if isinstance(record, CheckpointSaved):
            self.save_seconds = record.seconds
        if not self._is_silent:
            texts = {name: value for name in TEXTS if isinstance(value := getattr(record, name, None), str)}
            redacted = replace(record, **redact_value(texts))
            self._append(lambda: self._journal.write(redacted, durable=durable), redacted)

    def write_step(self, record: Step) -> None:
        """Append a finished step to the metrics."""
        parts = (record.data_seconds, record.forward_backward_seconds, record.optimizer_seconds, record.rest_seconds)
        self.step_seconds = sum(parts)
        if not self._is_silent:
            self._append(lambda: self._metrics.write(record), record)

    def begin_ledger(self, fingerprint: str | None, after: int) -> None:
        """Cut off what the ledger has of steps above `after`; where the rows have a fingerprint, go on from there."""

        def begin() -> None:
            try:
                self._ledger = LedgerWriter(self._run.ledger, fingerprint, after) if fingerprint else None
                if fingerprint is None:
                    rewind(self._run.ledger, after)
            except OSError as error:
                raise disk_error(error, "The ledger could not be opened", self._run.folder) from error

        self._append(begin, "the ledger")

    def write_rows(self, step: int, rows: np.ndarray) -> None:
        """Append the rows of a step to the ledger, if one is kept."""
        if (ledger := self._ledger) is not None:
            self._append(lambda: ledger.write(step, rows), f"the rows of step {step}")

    def warn(self, message: str) -> None:
        """Append a warning to the journal."""
        self.write(Warned(message=message))

    def note(self, message: str) -> None:
        """Append an explanation to the journal."""
        self.write(Noted(message=message))

    def set_phase(self, phase: Phase, detail: str = "") -> None:
        """Enter a phase, or add a detail to it; the phase that is on already is written only with a detail."""
        is_new, self._phase = phase != self._phase, phase
        if is_new or detail:
            self.write(PhaseChanged(phase=phase, detail=detail))
        self.progress(at_once=is_new)

    def enter(self, phase: Phase, detail: str = "") -> None:
        """Enter a phase that ends with `leave()`."""
        self._outer_phases.append(self._phase)
        self.set_phase(phase, detail)

    def leave(self) -> None:
        """Return to the phase before the last `enter()`."""
        self.set_phase(self._outer_phases.pop())

    @contextmanager
    def within(self, phase: Phase, detail: str = "") -> Iterator[None]:
        """A phase for as long as the block takes; what ends the block by an exception also ends what was before."""
        self.enter(phase, detail)
        yield
        self.leave()

    def progress(
        self, *, step: int | None = None, micro_step: int = 0, detail: str = "", at_once: bool = False
    ) -> None:
        """Count one unit of work in whatever phase; at most once a second it also reaches beat.json.

        A `detail` (rows read, bytes loaded) goes with the beat to the journal, so that a reader can show it.
        """
        self._progress += 1
        self.num_steps = self.num_steps if step is None else step
        if self._is_silent:
            return
        now = time.monotonic()
        if at_once or now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            self._beat(micro_step)
            self._shorten_log()
            self._check_lock()
            if detail:
                self.write(PhaseChanged(phase=self._phase, detail=detail))

    def _check_lock(self) -> None:
        """See that this is still the only writer. A lock file that somebody deleted is made anew."""
        if self.lock is None or self.lock.is_ours():
            return
        self.lock = try_lock(self._run.engine_lock) if self.lock.lease is None else None
        if self.lock is None:
            raise LostRunError("Another process has taken this run over.", hint=f"`ftui status {self._run.name}`")

    def _beat(self, micro_step: int) -> None:
        beat = Beat(
            time=time.time(), attempt=self.attempt, token=self.token, phase=self._phase, step=self.num_steps,
            micro_step=micro_step, progress=self._progress,
        )  # fmt: skip
        try:
            replace_file(self._run.beat, msgspec.json.encode(beat))
        except OSError as error:  # a lasting fault shows at the next record, which raises
            print(f"beat.json could not be written: {error}", flush=True)

    def _shorten_log(self) -> None:
        """Begin a new engine.log when it has grown long: renamed and reopened under the same descriptors."""
        log = self._run.engine_log
        try:
            own_output, there = os.fstat(1), os.lstat(log)
        except FileNotFoundError:
            return
        if there.st_size < LONGEST_LOG or not os.path.samestat(own_output, there):
            return  # short, or our output goes elsewhere
        new = log.with_name(f".{log.name}.new")
        try:
            new.unlink(missing_ok=True)
            new_log = open_private(new, os.O_WRONLY | os.O_APPEND | os.O_EXCL)
        except OSError as error:  # the old one grows on; another try comes in a second
            print(f"{log.name} could not be shortened: {error}", flush=True)
            return
        log.rename(self._run.engine_log_before)
        new.rename(log)
        for descriptor in (1, 2):
            os.dup2(new_log, descriptor)
        os.close(new_log)

    def make_reserve(self) -> None:
        """Reserve space on the disk for the record that says that the disk is full.

        Raises:
            DiskError: it cannot be written (a DiskFullError where there is no space).
        """
        make_reserve(self._run.reserve)

    def _append(self, write: Callable[[], None], record: Record | str) -> None:
        """Append a record; on a full disk give the reserve back first, then wait for room."""
        waited = False
        while True:
            try:
                write()
                break
            except DiskError as error:
                is_full = isinstance(error, DiskFullError)
                if is_full and release_reserve(self._run.reserve):
                    continue
                if self.is_shutting_down:
                    print(f"not recorded: {record}: {error.message}", flush=True)
                    return
                if not is_full or self.disk_wait is None:
                    raise
                self.disk_wait.wait(error)
                waited = True
        if waited and self.disk_wait is not None:
            self.disk_wait.end_wait()
