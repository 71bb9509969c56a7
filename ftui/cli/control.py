"""`ftui pause RUN` and the like: send a control request to a running run and wait for its answer. `ftui remove RUN` ...

What a command may still do to a run that is not running (pin, unpin, delete) it does itself, under the engine's lock.
"""

import sys
import time
from collections.abc import Sequence

from ftui import units
from ftui.errors import FINISHED, STOPPED, DiskError, UsageError
from ftui.launch import manage_runs
from ftui.launch.manage_runs import Removal, describe_removal, plan_removal
from ftui.runs.checkpoint_folders import step_of
from ftui.runs.events import ControlApplied, ControlRefused, Sampled
from ftui.runs.records.record_lines import event_lines
from ftui.runs.requests import (
    Abort,
    AnyRequest,
    ControlRequest,
    GenerateSamples,
    Set,
    Stop,
    write_request,
)
from ftui.runs.run_folder import Run, find_run
from ftui.runs.send_request import (
    CHECKPOINT_REQUESTS,
    REQUESTS,
    address_request,
    apply_directly,
    end_push,
    parse_setting,
)
from ftui.runs.state import phase_word
from ftui.runs.status import Watch, is_running, judge, only_pushes, read_status
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
    """Send a request and wait for its answer; what ends a run ends the push of one that has finished."""
    watch = Watch(run)
    watch.catch_up()
    status = ensure_supervised(run, judge(run, watch))
    if kind in (Stop, Abort) and only_pushes(status):
        end_push(status)
        while is_running(judge(run, watch)):
            time.sleep(LOOK_SECONDS)
        print(f"The push of {shown(run.name)} has ended: `ftui push {shown(run.name)}` goes on with it.")
        return 0
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
        if not (is_running(status) or status.elsewhere):
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


def remove_runs(names: Sequence[str], yes: bool) -> int:
    """`ftui remove RUN ...`: say what would be deleted, ask, delete. The exit code after a no is that of a stop.

    Raises:
        UsageError: one of the runs is not there, is running or needed by another; or nobody can be asked.
        DiskError: something is left of one.
    """
    removals = [plan_removal(run) for run in _find_runs(names)]
    for removal in removals:
        print("\n".join(describe_removal(removal)))
    if not yes and not _agreed(removals):
        print("Nothing was removed.")
        return STOPPED
    for run in (removal.run for removal in removals):
        manage_runs.sweep_removed(run.folder.parent)
        if not manage_runs.remove(run):
            raise DiskError(
                f"{run.name} is removed, but the volume keeps some of its files for now.",
                hint="The next `ftui remove` or new run tries to delete them again.",
            )
        print(f"Removed {shown(run.name)}.")
    return FINISHED


def _find_runs(names: Sequence[str]) -> list[Run]:
    return list(dict.fromkeys(find_run(name) for name in names))


def _agreed(removals: Sequence[Removal]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nothing was removed: there is no terminal to ask on.", hint="--yes removes without asking.")
    freed = units.size(sum(removal.num_bytes for removal in removals))
    what = "it" if len(removals) == 1 else f"these {len(removals)} runs"
    print(f"Delete {what} for good and free {freed}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def archive_runs(names: Sequence[str]) -> int:
    """`ftui archive RUN ...`.

    Raises:
        UsageError: one is not there, or is running.
    """
    for run in _find_runs(names):
        manage_runs.archive(run)
        print(f"Archived {shown(run.name)}: `ftui runs --archived` lists it, `ftui unarchive {shown(run.name)}`.")
    return FINISHED


def unarchive_runs(names: Sequence[str]) -> int:
    """`ftui unarchive RUN ...`.

    Raises:
        UsageError: one is not there.
    """
    for run in _find_runs(names):
        manage_runs.unarchive(run)
        print(f"{shown(run.name)} is back in the lists.")
    return FINISHED


def rename_run(name: str, new_name: str) -> int:
    """`ftui rename RUN NEW_NAME`.

    Raises:
        UsageError: there is no such run, it is running or needed by another, or the name is not to be had.
    """
    run = find_run(name)
    renamed = manage_runs.rename(run, new_name)
    print(f"{shown(run.name)} is now {shown(renamed.name)}.")
    return FINISHED
