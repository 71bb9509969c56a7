"""Commands that ask something of a living run: `ftui hold RUN` and its kin. They send a letter and wait for the answer.

What a command may still do to a run that does not live (pin, unpin, delete) it does itself, under the engine's lock.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence

import msgspec

from ftui.errors import LostRunError, UsageError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import listed, step_of
from ftui.runs.checkpoint_index import best_step
from ftui.runs.describe import event_lines
from ftui.runs.events import CheckpointRemoved, ControlApplied, ControlRefused, Sampled
from ftui.runs.journal import Writer
from ftui.runs.pins import read_pins, undeletable, write_pins
from ftui.runs.requests import (
    SETTINGS,
    Abort,
    AnyLetter,
    Continue,
    Delete,
    Evaluate,
    Hold,
    Letter,
    Park,
    Pin,
    Sample,
    Save,
    Set,
    Stop,
    Unpin,
    new_id,
    send,
)
from ftui.runs.run_folder import Run, find_run
from ftui.runs.state import RunState, is_over
from ftui.runs.status import Status, Watch, judge, lives, read_status
from ftui.supervisor.spawn import watched
from ftui.system.files import try_lock
from ftui.system.volume import disk_error
from ftui.text import shown

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 5.0  # after this long without an answer, say what the engine is busy with

VERBS: dict[str, type[Letter]] = {
    "hold": Hold,
    "pause": Hold,
    "continue": Continue,
    "park": Park,
    "checkpoint": Save,
    "stop": Stop,
    "abort": Abort,
    "evaluate": Evaluate,
    "sample": Sample,
}
ON_CHECKPOINTS: dict[str, type[Letter]] = {"pin": Pin, "unpin": Unpin, "delete": Delete}


def order(verb: str, name: str, prompts: Sequence[str] = ()) -> int:
    """`ftui hold RUN` and the like: 0 when the run has obeyed.

    Raises:
        UsageError: the run does not live, or it refused.
    """
    kind = VERBS[verb]
    return deliver(find_run(name), kind, {"prompts": tuple(prompts)} if kind is Sample else {})


def change(name: str, assignments: Sequence[str]) -> int:
    """`ftui set RUN key=value ...`.

    Raises:
        UsageError: a key or value that cannot be set, and see `order`.
    """
    return deliver(find_run(name), Set, dict(setting(text) for text in assignments))


def setting(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if not equals or key not in SETTINGS:
        raise UsageError(f"{text!r} cannot be set.", hint=f"One of {', '.join(f'{name}=...' for name in SETTINGS)}.")
    try:
        return key, float(value) if key == "learning_rate_factor" else int(value)
    except ValueError:
        raise UsageError(
            f"{key} must be a number, not {value!r}.", hint=f"For instance {key}=0.5 or {key}=100."
        ) from None


def on_checkpoint(verb: str, name: str, checkpoint: str) -> int:
    """`ftui pin|unpin|delete RUN CHECKPOINT`, whether the run lives or not.

    Raises:
        UsageError: there is no such checkpoint, it must stay, or the run refused.
    """
    run, step = find_run(name), step_of(checkpoint)
    status = watched(run, read_status(run))
    if lives(status):
        return deliver(run, ON_CHECKPOINTS[verb], {"step": step})
    print(done_here(run, verb, step))
    return 0


def done_here(run: Run, verb: str, step: int) -> str:
    """Pin, unpin or delete a checkpoint of a run that does not live; returns what was done, in words.

    Raises:
        UsageError: there is no such checkpoint, or it must stay.
        LostRunError: the run is being started.
        DiskError: the volume refuses it.
    """
    try:
        with _as_writer(run):
            return _done(verb, run, read_status(run).state, step)
    except OSError as error:
        raise disk_error(error, f"`{verb}` of checkpoint-{step} failed", run.folder) from error


@contextlib.contextmanager
def _as_writer(run: Run) -> Iterator[None]:
    """Hold the engine's lock: whoever has it may change the run's files."""
    lock = try_lock(run.engine_lock)
    if lock is None:
        raise LostRunError(f"{run.name} is being started at this moment.", hint="Send it again when it trains.")
    try:
        yield
    finally:
        lock.close()


def _done(verb: str, run: Run, state: RunState, step: int) -> str:
    present, pins = listed(run.checkpoints), read_pins(run)
    found = next((c for c in present if c.step == step), None)
    if verb == "unpin":
        write_pins(run, pins - {step})
        return f"checkpoint-{step} is not pinned any more"
    if found is None:
        steps = ", ".join(str(c.step) for c in reversed(present)) or "none"
        raise UsageError(f"{run.name} has no checkpoint-{step}.", hint=f"There are: {steps}.")
    if verb == "pin":
        write_pins(run, pins | {step})
        return f"checkpoint-{step} is pinned"
    if reason := undeletable(found, present, pins, best_step(run, state), is_over=is_over(state)):
        raise UsageError(f"checkpoint-{step} was not deleted: {reason}.")
    checkpoint_folders.discard(found.path)
    writer = Writer(run.journal, attempt=state.attempt, token=state.token)
    writer.write(CheckpointRemoved(step=step, path=f"checkpoints/{found.path.name}"), durable=True)
    writer.close()
    return f"checkpoint-{step} is deleted"


def deliver(run: Run, kind: type[Letter], fields: dict[str, object]) -> int:
    """Send a letter and wait for its answer."""
    watch = Watch(run)
    watch.catch_up()
    status = watched(run, judge(run, watch))
    letter = addressed(run, status, kind, fields)
    send(run, letter)
    return _answered(run, watch, letter)


def addressed(run: Run, status: Status, kind: type[Letter], fields: dict[str, object]) -> AnyLetter:
    """A letter to the attempt that lives now.

    Raises:
        UsageError: none does, or a field is out of its bounds.
    """
    state = status.state
    if not lives(status) or state.attempt == 0:
        hint = f"`ftui --run {run.name}` goes on with it." if not is_over(state) else ""
        raise UsageError(f"{run.name} does not live ({state.phase}): nobody would read the letter.", hint=hint)
    verb = kind.__struct_config__.tag
    document = {"verb": verb, "id": new_id(), "attempt": state.attempt, "token": state.token, **fields}
    try:
        letter: AnyLetter = msgspec.convert(document, AnyLetter)
        return letter
    except msgspec.ValidationError as error:
        raise UsageError(f"`{verb}` cannot be sent: {error}.") from error


def _answered(run: Run, watch: Watch, letter: AnyLetter) -> int:
    told = time.monotonic() + PATIENCE_SECONDS
    while True:
        for record, _ in watch.read():
            match record:
                case ControlApplied(letter=letter.id):
                    print("\n".join(event_lines(record)))
                    return 0
                case Sampled(requested=True) if isinstance(letter, Sample):
                    print("\n".join(event_lines(record)))
                case ControlRefused(letter=letter.id, reason=reason):
                    raise UsageError(f"{run.name} refused `{letter.verb}`: {shown(reason)}.")
        status = judge(run, watch)
        if not lives(status):
            return _too_late(run, watch, letter)
        if time.monotonic() > told:
            told = float("inf")
            print(
                f"sent; {shown(run.name)} is {status.state.phase} and answers when that lets it (Ctrl-C: do not wait)",
                flush=True,
            )
        time.sleep(LOOK_SECONDS)


def _too_late(run: Run, watch: Watch, letter: AnyLetter) -> int:
    """The run ended; the answer may have been its last word."""
    for record, _ in watch.read():
        if isinstance(record, ControlApplied) and record.letter == letter.id:
            print("\n".join(event_lines(record)))
            return 0
    raise UsageError(f"{run.name} ended ({watch.state.phase}) before it read the letter.")
