"""`ftui pause RUN` and the like: send a control request to a running run and wait for its answer.

What a command may still do to a run that is not running (pin, unpin, delete) it does itself, under the engine's lock.
"""

import time
from collections.abc import Sequence

from ftui.errors import UsageError
from ftui.runs.checkpoint_folders import step_of
from ftui.runs.describe import event_lines
from ftui.runs.events import ControlApplied, ControlRefused, Sampled
from ftui.runs.requests import (
    AnyRequest,
    ControlRequest,
    GenerateSamples,
    Set,
    write_request,
)
from ftui.runs.run_folder import Run, find_run
from ftui.runs.send_request import CHECKPOINT_REQUESTS, REQUESTS, address_request, apply_directly, parse_setting
from ftui.runs.state import phase_word
from ftui.runs.status import Watch, is_running, judge, read_status
from ftui.runs.verbs import verb_name
from ftui.supervisor.spawn import ensure_supervised
from ftui.text import shown

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 5.0  # after this long without an answer, say what the engine is busy with


def order(verb: str, name: str, prompts: Sequence[str] = ()) -> int:
    """`ftui pause RUN` and the like: 0 when the run has done it.

    Raises:
        UsageError: the run is not running, or it refused.
    """
    kind = REQUESTS[verb]
    return deliver(find_run(name), kind, {"prompts": tuple(prompts)} if kind is GenerateSamples else {})


def change(name: str, assignments: Sequence[str]) -> int:
    """`ftui set RUN key=value ...`.

    Raises:
        UsageError: a key or value that cannot be set, and see `order`.
    """
    return deliver(find_run(name), Set, dict(parse_setting(text) for text in assignments))


def on_checkpoint(verb: str, name: str, checkpoint: str) -> int:
    """`ftui pin|unpin|delete RUN CHECKPOINT`, whether the run is running or not.

    Raises:
        UsageError: there is no such checkpoint, it must stay, or the run refused.
    """
    run, step = find_run(name), step_of(checkpoint)
    status = ensure_supervised(run, read_status(run))
    if is_running(status):
        return deliver(run, CHECKPOINT_REQUESTS[verb], {"step": step})
    print(apply_directly(run, verb, step))
    return 0


def deliver(run: Run, kind: type[ControlRequest], fields: dict[str, object]) -> int:
    """Send a request and wait for its answer."""
    watch = Watch(run)
    watch.catch_up()
    status = ensure_supervised(run, judge(run, watch))
    request = address_request(run, status, kind, fields)
    write_request(run, request)
    return _answered(run, watch, request)


def _answered(run: Run, watch: Watch, request: AnyRequest) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        for record, _ in watch.read():
            match record:
                case ControlApplied(request=request.id):
                    print("\n".join(event_lines(record)))
                    return 0
                case Sampled(requested=True) if isinstance(request, GenerateSamples):
                    print("\n".join(event_lines(record)))
                case ControlRefused(request=request.id, reason=reason):
                    raise UsageError(f"{run.name} refused `{verb_name(request.verb)}`: {shown(reason)}.")
        status = judge(run, watch)
        if not is_running(status):
            return _too_late(run, watch, request)
        if time.monotonic() > deadline:
            deadline = float("inf")
            print(
                f"sent; {shown(run.name)} is {phase_word(status.state.phase)} and answers as soon as it can"
                " (Ctrl-C: do not wait)",
                flush=True,
            )
        time.sleep(LOOK_SECONDS)


def _too_late(run: Run, watch: Watch, request: AnyRequest) -> int:
    """The run ended; the answer may have been its last word."""
    for record, _ in watch.read():
        if isinstance(record, ControlApplied) and record.request == request.id:
            print("\n".join(event_lines(record)))
            return 0
    raise UsageError(f"{run.name} ended ({phase_word(watch.state.phase)}) before it read the request.")
