"""How an attempt ends: each way of leaving a training run, what it saves, its last record and its exit code."""

import contextlib
import time
from collections.abc import Callable

from ftui.errors import FINISHED, PARKED, PREEMPTED_NOT_SAVED, PREEMPTED_SAVED, STOPPED, DiskError, DiskFullError
from ftui.runs import checkpoint_folders
from ftui.runs.events import RunFinished, RunStopped

from ..checkpoints.checkpoint import Keeper
from ..checkpoints.export import finish
from ..runtime.control_flags import Leave, Why
from .context import Training
from .loop import Loop

Way = Callable[[Training, Keeper, Loop, Leave], RunStopped]


def conclude(training: Training, keeper: Keeper, loop: Loop, reason: str) -> int:
    """All steps are done: final/ and the last record.

    The last step is saved first: final/ may be made of the best weights, and then the last ones are gone from memory.
    """
    keeper.save(loop.boundary, "last")
    keeper.settle()
    step, loss = finish(training)
    training.control.close("the run has finished")
    training.logbook.event(
        RunFinished(
            step=training.state.step, reason=reason, final="final",
            loss_before=training.state.loss_before, loss_final=loss, step_final=step,
        ),
        durable=True,
    )  # fmt: skip
    return FINISHED


def leave(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> int:
    """Leave a run in training; a second, more urgent wish (abort while it saves for a stop) is heard, too."""
    ways: dict[Why, Way] = {"preempted": _preempted, "park": _park, "stop": _stop, "abort": _abort, "full": _full}
    while True:
        try:
            record = ways[leaving.why](training, keeper, loop, leaving)
            break
        except Leave as again:
            leaving = again
    training.logbook.is_leaving = True
    training.control.close("the run has ended")
    training.logbook.event(record, durable=True)
    return record.exit_code


def _preempted(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> RunStopped:
    """SIGTERM: save if the grace allows it (by the measured time of the last save), else leave at once."""
    state, begun = training.state, time.monotonic()
    training.control.terminated = False  # heard; a second one during the save must not end it
    training.logbook.is_leaving = True  # there are seconds only: a full disk is not waited for
    expected = keeper.last_save_seconds
    in_time = expected is None or expected * 1.5 <= training.profile.checkpoint.grace_seconds
    if state.step > 0 and (in_time or _saved(training) is not None):
        with contextlib.suppress(DiskFullError):
            keeper.save(loop.boundary, "preempted")
    saved = _saved(training)
    how = f"saved in {time.monotonic() - begun:.1f} s" if saved else "not saved"
    code = PREEMPTED_SAVED if saved else PREEMPTED_NOT_SAVED
    return RunStopped(
        step=state.step, reason=f"pre-empted (SIGTERM) after step {state.step}, {how}", exit_code=code, checkpoint=saved
    )


def _park(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> RunStopped:
    saved = _save(training, keeper, loop, "parked")
    training.control.answer(leaving.request, saved or "nothing to save yet")
    return RunStopped(step=training.state.step, reason="on request", exit_code=PARKED, checkpoint=saved)


def _stop(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> RunStopped:
    """A stopped run is over, but it is worth something: it gets its final/ like one that came to its end."""
    saved = _save(training, keeper, loop, "last")
    training.control.answer(leaving.request, saved or "nothing to save yet")
    if saved is None:
        return RunStopped(step=training.state.step, reason="on request", exit_code=STOPPED)
    keeper.settle()
    finish(training)
    return RunStopped(step=training.state.step, reason="on request", exit_code=STOPPED, checkpoint=saved, final="final")


def _abort(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> RunStopped:
    training.control.answer(leaving.request)
    return RunStopped(
        step=training.state.step, reason="aborted, nothing saved", exit_code=STOPPED, checkpoint=_saved(training)
    )


def _full(training: Training, keeper: Keeper, loop: Loop, leaving: Leave) -> RunStopped:
    minutes = training.profile.checkpoint.max_hold_minutes
    return RunStopped(
        step=training.state.step,
        reason=f"the disk stayed full for {minutes:g} min; the run goes on from its newest checkpoint",
        exit_code=DiskError.exit_code,
        checkpoint=_saved(training),
    )


def _save(training: Training, keeper: Keeper, loop: Loop, tag: str) -> str | None:
    if training.state.step > 0:
        keeper.save(loop.boundary, tag)
    return _saved(training)


def _saved(training: Training) -> str | None:
    """The checkpoint of the last finished step, if there is one."""
    path = training.run.checkpoints / f"checkpoint-{training.state.step}"
    return f"checkpoints/{path.name}" if checkpoint_folders.fault(path, quick=True) is None else None
