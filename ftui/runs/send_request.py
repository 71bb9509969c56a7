"""Send a control request to a running run; pin, unpin or delete a checkpoint of one that is not running."""

import contextlib
import os
import signal
from collections.abc import Iterator

import msgspec

from ftui.errors import LostRunError, UsageError
from ftui.runs.events import CheckpointRemoved
from ftui.runs.journal import Writer
from ftui.runs.requests import (
    BOUNDS,
    MOST_FACTOR,
    MOST_STEPS,
    SETTINGS,
    Abort,
    AnyRequest,
    Continue,
    ControlRequest,
    Delete,
    Evaluate,
    GenerateSamples,
    Park,
    Pause,
    Pin,
    Save,
    Stop,
    Unpin,
    new_id,
)
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState, has_ended, phase_word
from ftui.runs.status import Status, is_running, only_pushes, read_status
from ftui.system.files import try_lock
from ftui.system.volume import disk_error
from ftui.text import did_you_mean

REQUESTS: dict[str, type[ControlRequest]] = {
    "hold": Pause,
    "pause": Pause,
    "continue": Continue,
    "park": Park,
    "checkpoint": Save,
    "stop": Stop,
    "abort": Abort,
    "evaluate": Evaluate,
    "sample": GenerateSamples,
}

CHECKPOINT_REQUESTS: dict[str, type[ControlRequest]] = {"pin": Pin, "unpin": Unpin, "delete": Delete}


def address_request(run: Run, status: Status, kind: type[ControlRequest], fields: dict[str, object]) -> AnyRequest:
    """A request to the running attempt.

    Raises:
        UsageError: none does, or a field is out of its bounds.
    """
    state = status.state
    if not (is_running(status) or status.elsewhere) or state.attempt == 0:
        hint = f"`ftui --run {run.name}` continues it." if not has_ended(state) else ""
        raise UsageError(f"{run.name} is not running ({phase_word(state.phase)}): no request was sent.", hint=hint)
    if only_pushes(status):
        raise UsageError(
            f"{run.name} has finished, and its result is being pushed: no request was sent.",
            hint=f"`ftui stop {run.name}` ends the push.",
        )
    verb = kind.__struct_config__.tag
    document = {"verb": verb, "id": new_id(), "attempt": state.attempt, "token": state.token, **fields}
    try:
        request: AnyRequest = msgspec.convert(document, AnyRequest)
        return request
    except msgspec.ValidationError as error:
        needs = "; ".join(f"{name} must be {BOUNDS[name]}" for name in fields if name in BOUNDS)
        raise UsageError(f"`{verb}` cannot be sent: {needs}.") from error


def end_push(status: Status) -> None:
    """Tell the supervisor of a run that only pushes (`only_pushes`) to end that; `ftui push RUN` goes on with it."""
    assert status.supervisor is not None, "it pushes"
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(status.supervisor.pid, signal.SIGTERM)


def parse_setting(text: str) -> tuple[str, float | str]:
    """The key and the value of `KEY=VALUE`, as `ftui set` takes it.

    Raises:
        UsageError: no such key, or no value within its bounds.
    """
    key, equals, value = text.partition("=")
    if key == "decay" and value == "linear":
        return key, value
    if not equals or key not in (*SETTINGS, "decay"):
        names = ", ".join(f"{name}=..." for name in SETTINGS)
        guess = did_you_mean(key, [*SETTINGS, "decay"]) if equals else ""
        raise UsageError(
            f"{text!r} cannot be set.", hint=f"{guess}One of {names}, decay=linear; max_steps is where it ends."
        )
    if key == "decay":
        raise UsageError(f"decay must be {BOUNDS[key]}, not {value!r}.", hint="Write decay=linear.")
    is_factor = key == "learning_rate_factor"
    with contextlib.suppress(ValueError):
        number = float(value) if is_factor else int(value)
        if 0 <= number <= MOST_FACTOR if is_factor else 1 <= number <= MOST_STEPS:
            return key, number
    hint = f"For instance {key}={0.5 if is_factor else 100}."
    raise UsageError(f"{key} must be {BOUNDS[key]}, not {value!r}.", hint=hint)


def apply_directly(run: Run, verb: str, step: int) -> str:
    """Pin, unpin or delete a checkpoint of a run that is not running; returns what was done, in words.

    Raises:
        UsageError: there is no such checkpoint, or it must stay.
        LostRunError: the run is being started.
        DiskError: the volume refuses it.
    """
    try:
        with _as_writer(run):
            return _change_checkpoint(verb, run, read_status(run).state, step)
    except OSError as error:
        raise disk_error(error, f"`{verb}` of checkpoint-{step} failed", run.folder) from error


@contextlib.contextmanager
def _as_writer(run: Run) -> Iterator[None]:
    """Take the engine's lock: whoever has it may change the run's files."""
    run.check()
    lock = try_lock(run.engine_lock)
    if lock is None:
        raise LostRunError(f"{run.name} is being started at this moment.", hint="Send it again when it trains.")
    try:
        yield
    finally:
        lock.close()


def _change_checkpoint(verb: str, run: Run, state: RunState, step: int) -> str:
    # These load hashlib and more (7 ms), which the live view, whose requests the engine carries out, does without.
    from ftui.runs.checkpoint_folders import checkpoints_in, discard
    from ftui.runs.checkpoint_index import best_step
    from ftui.runs.pins import read_pins, undeletable, write_pins

    present, pins = checkpoints_in(run.checkpoints), read_pins(run)
    checkpoint = next((c for c in present if c.step == step), None)
    if verb == "unpin":
        write_pins(run, pins - {step})
        return f"checkpoint-{step} is not pinned any more"
    if checkpoint is None:
        steps = ", ".join(str(c.step) for c in reversed(present)) or "none"
        raise UsageError(f"{run.name} has no checkpoint-{step}.", hint=f"There are: {steps}.")
    if verb == "pin":
        write_pins(run, pins | {step})
        return f"checkpoint-{step} is pinned"
    if reason := undeletable(checkpoint, present, pins, best_step(run, state), has_ended=has_ended(state)):
        raise UsageError(f"checkpoint-{step} was not deleted: {reason}.")
    discard(checkpoint.path)
    writer = Writer(run.journal, attempt=state.attempt, token=state.token)
    writer.write(CheckpointRemoved(step=step, path=f"checkpoints/{checkpoint.path.name}"), durable=True)
    writer.close()
    return f"checkpoint-{step} is deleted"
