"""How an attempt ends: each way of leaving a training run, what it saves, its last record and its exit code."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from ftui.errors import (
    FINISHED,
    PARKED,
    PREEMPTED_NOT_SAVED,
    PREEMPTED_SAVED,
    STOPPED,
    DiskError,
    DiskFullError,
    LostRunError,
    NonFiniteError,
)
from ftui.profile.sections.evaluation import CheckpointSection
from ftui.runs.events import RunFinished, RunStopped

from ..checkpoints.checkpoint import CheckpointManager
from ..runtime.control_flags import Control, Shutdown
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState


@dataclass(eq=False)
class RunEnd:
    """Ends a training run. `export` writes final/ and returns the step of its weights and their evaluation loss.

    As a context it keeps, where an error ends the attempt, the save that is under way.
    """

    section: CheckpointSection
    state: TrainState
    control: Control
    events: EventWriter
    checkpoints: CheckpointManager
    export: Callable[[], tuple[int, float | None]]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if isinstance(error, Exception) and not isinstance(error, LostRunError):
                self.keep_save()
        finally:
            self.checkpoints.close()

    def finish(self, reason: str) -> int:
        """All steps are done: write final/ and the last record; returns the exit code.

        The last step is saved first: final/ may be made of the best weights, and then the last ones are gone from
        memory.
        """
        self.checkpoints.save("last")
        step, loss = self.export()
        self.control.close("the run has finished")
        self.events.write(
            RunFinished(
                step=self.state.step, reason=reason, final="final",
                loss_before=self.state.loss_before, loss_final=loss, step_final=step,
            ),
            durable=True,
        )  # fmt: skip
        return FINISHED

    def leave(self, shutdown: Shutdown) -> int:
        """Leave a run in training; a second, more urgent request (abort while it saves for a stop) is obeyed too.

        Returns the exit code.
        """
        while True:
            try:
                record = self._end(shutdown)
                break
            except Shutdown as urgent:
                shutdown = urgent
        self.events.is_shutting_down = True
        self.control.close("the run has ended")
        self.events.write(record, durable=True)
        return record.exit_code

    def _end(self, shutdown: Shutdown) -> RunStopped:
        match shutdown.why:
            case "preempted":
                return self._preempt()
            case "park":
                self._save("parked", shutdown)
                reason = "on request" if shutdown.request is not None else shutdown.reason or self._rung_words()
                return self._stop_record(reason, PARKED)
            case "stop":
                return self._stop(shutdown)
            case "abort":
                self.keep_save()
                self.control.answer(shutdown.request)
                return self._stop_record("aborted, nothing saved", STOPPED)
            case "full":
                self.keep_save()
                minutes = f"{self.section.max_hold_minutes:g} min"
                reason = f"the disk stayed full for {minutes}; the run continues from its newest checkpoint"
                return self._stop_record(reason, DiskError.exit_code)

    def _rung_words(self) -> str:
        return f"checkpoint.park_at_step = {self.section.park_at_step}; it goes on with a greater one, or with none"

    def _stop(self, shutdown: Shutdown) -> RunStopped:
        """Save, and write final/; not of weights whose evaluation is NaN, and the run was stopped all the same."""
        self._save("last", shutdown)
        if self.checkpoints.saved_path() is None:
            return self._stop_record("on request", STOPPED)
        try:
            self.export()
        except NonFiniteError as error:
            self.events.warn(f"{error.message} {error.hint}")
            return self._stop_record(f"on request; {error.message.removesuffix('.')}", STOPPED)
        return self._stop_record("on request", STOPPED, final="final")

    def _preempt(self) -> RunStopped:
        """SIGTERM: save if the grace allows it (by the measured time of the last save), else leave at once."""
        start, step = time.monotonic(), self.state.step
        self.control.terminated = False  # obeyed; a second one during the save must not end it
        self.keep_save()
        expected, waited = self.checkpoints.last_save_seconds, time.monotonic() - start
        in_time = expected is None or waited + expected * 1.5 <= self.section.grace_seconds
        if step > 0 and (in_time or self.checkpoints.saved_path() is not None):
            with contextlib.suppress(DiskFullError):
                self.checkpoints.save("preempted")
        is_saved = self.checkpoints.saved_path() is not None
        outcome = f"saved in {time.monotonic() - start:.1f} s" if is_saved else "not saved"
        code = PREEMPTED_SAVED if is_saved else PREEMPTED_NOT_SAVED
        return self._stop_record(f"pre-empted (SIGTERM) after step {step}, {outcome}", code)

    def keep_save(self) -> None:
        """Wait for a save under way and record it, but not for room: the attempt ends, a full disk is only logged."""
        self.events.is_shutting_down = True
        try:
            self.checkpoints.finish()
        except (DiskError, RuntimeError) as error:  # what ended the attempt says more
            print(f"the save under way failed as the attempt ended: {error}", flush=True)

    def _save(self, tag: str, shutdown: Shutdown) -> None:
        """Save the last finished step, if there is one, and answer the request."""
        if self.state.step > 0:
            self.checkpoints.save(tag)
        self.control.answer(shutdown.request, self.checkpoints.saved_path() or "nothing to save yet")

    def _stop_record(self, reason: str, exit_code: int, final: str | None = None) -> RunStopped:
        checkpoint = self.checkpoints.saved_path()
        return RunStopped(step=self.state.step, reason=reason, exit_code=exit_code, checkpoint=checkpoint, final=final)
