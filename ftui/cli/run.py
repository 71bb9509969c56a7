"""`ftui --run P` and `ftui resume RUN`: open a run and follow it. A reader only: the run continues without it."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from ftui.cli.cluster.keep_node import keep_node, place_of, refusals_told
from ftui.cli.control import order
from ftui.cli.follow import conclude, follow
from ftui.cli.terminal import LiveOutput
from ftui.errors import INTERRUPTED, ProfileError, UsageError
from ftui.launch.budget.check_budget import check_budget
from ftui.launch.fork import ForkOrigin, describe_epochs, find_origin, fork, is_newest
from ftui.launch.open_run import (
    OpenedRun,
    check_files,
    decide,
    locate_run,
    open_run,
    pending_changes,
    stored_profile,
    wait_for_start,
)
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.presets import find_profile
from ftui.profile.schema import Profile
from ftui.runs import describe
from ftui.runs.requests import Abort, ControlRequest, Stop, write_request
from ftui.runs.run_folder import Run, check_name, find_run
from ftui.runs.send_request import address_request
from ftui.runs.state import has_begun
from ftui.runs.status import is_running, read_status
from ftui.system.logind import kills_on_logout
from ftui.system.process_id import is_alive
from ftui.text import shown


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for beside the profile.

    `allow` names what is refused without being asked for: `remote-code`, code that comes with a model.
    """

    name: str | None = None
    overrides: Sequence[str] = ()
    again: bool = False
    detach: bool = False
    fork: bool = False
    allow: Sequence[str] = ()
    tier: str | None = None


def run_profile(
    profile: str, run_name: str | None, overrides: Sequence[str], tier: str | None, allow: Sequence[str],
    again: bool, detach: bool, fork: bool, dry_run: bool, probe: bool,
) -> int:  # fmt: skip
    """`ftui run P`: start, attach to or resume a run; or, with --dry-run, show what that would be."""
    if dry_run:
        from ftui.cli.dry_run import preview

        _, resolved = locate_run(profile, run_name, overrides, tier)
        check_files(resolved)
        check_budget(resolved.profile)
        return preview(resolved, allow)
    wishes = Wishes(run_name, overrides, again, detach, fork, allow=tuple(allow), tier=tier)
    if probe:
        _probe(profile, wishes)
    return run_headless(profile, wishes)


def _probe(text: str, wishes: Wishes) -> None:
    """Measure what is about to be started or resumed; raises where it does not fit.

    A running run is left alone: another process beside it could take the memory that it needs.
    """
    from ftui.cli.estimate import probe_lines  # 0.1 s that a run does without

    folder, resolved = locate_run(text, wishes.name, wishes.overrides, wishes.tier)
    run, decision = decide(folder, again=wishes.again)
    if decision in ("attach", "finished") and not wishes.fork:
        print(f"{run.name} {'is running' if decision == 'attach' else 'has ended'}: nothing is probed.")
        return
    for line in probe_lines(resolved.profile, wishes.allow):
        print(line, flush=True)


def resume_run(
    name: str, checkpoint: str | None, run_name: str | None, overrides: Sequence[str], allow: Sequence[str],
    detach: bool, fork: bool,
) -> int:  # fmt: skip
    """`ftui resume RUN [--from CHECKPOINT]`."""
    wishes = Wishes(run_name, overrides, detach=detach, fork=fork, allow=tuple(allow))
    return resume_headless(name, checkpoint, wishes)


def run_headless(text: str, wishes: Wishes) -> int:
    """Open the run that `text` (a profile or a run's name) means and follow it to its end; returns its exit code.

    Raises:
        FtuiError: it could not be opened.
    """
    name = None if wishes.fork else wishes.name
    folder, resolved = locate_run(text, name, wishes.overrides, wishes.tier)
    if (place := place_of(resolved.profile)) is not None and place.rank > 0:
        return keep_node(
            Run(folder), resolved.profile, place, again=wishes.again, detach=wishes.detach, makes_child=wishes.fork
        )
    with refusals_told(Run(folder), place, print):
        if not wishes.fork:
            return attend(open_run(folder, resolved, again=wishes.again, allow=wishes.allow), text, resolved, wishes)
        return _fork(find_origin(Run(folder), None), text, resolved, wishes)


def resume_headless(name: str, checkpoint: str | None, wishes: Wishes) -> int:
    """Continue a run from its newest valid checkpoint, or in a child run from another one.

    Raises:
        FtuiError: it could not be opened.
    """
    run = find_run(name)
    resolved = resolve(run.profile, overrides=wishes.overrides)
    if (place := place_of(resolved.profile)) is not None and place.rank > 0:
        makes_child = wishes.fork or checkpoint is not None
        return keep_node(
            run,
            resolved.profile,
            place,
            again=False,
            detach=wishes.detach,
            makes_child=makes_child,
            resume_stopped=True,
        )
    with refusals_told(run, place, print):
        return _resume(run, name, checkpoint, resolved, wishes)


def _resume(run: Run, name: str, checkpoint: str | None, resolved: ResolvedProfile, wishes: Wishes) -> int:
    if checkpoint is not None or wishes.fork:
        origin = find_origin(run, checkpoint)
        if wishes.fork or not is_newest(origin):
            return _fork(origin, name, resolved, wishes)
    if wishes.name:
        raise UsageError("--name only goes with --fork, or --from another checkpoint than the newest.")
    status = read_status(run)
    if status.state.phase == "held" and is_running(status):
        order("continue", name)
    return attend(open_run(run.folder, resolved, resume_stopped=True, allow=wishes.allow), name, resolved, wishes)


def _fork(origin: ForkOrigin, text: str, resolved: ResolvedProfile, wishes: Wishes) -> int:
    name = check_name(wishes.name) if wishes.name else None
    run, differences = fork(origin, resolved, name, may_differ=wishes.fork, allow=wishes.allow)
    print(shown(f"{run.name} continues from {origin.checkpoint.path.name} of {origin.run.name}, which stays as it is."))
    for line in differences:
        print(f"  {shown(line)}")
    if epochs := describe_epochs(origin.run, origin.checkpoint, stored_profile(run), differences):
        print(epochs)
    return attend(open_run(run.folder, resolved), text, resolved, wishes)


def attend(opened: OpenedRun, text: str, resolved: ResolvedProfile, wishes: Wishes) -> int:
    """Tell what was opened and follow it; Ctrl-C ends a run that this command started, Ctrl-\\ leaves it alone."""
    lines = LiveOutput(sys.stdout)
    command = command_for(opened.run, text, wishes.overrides)
    _introduce(opened, resolved.profile, lines)
    if opened.decision == "finished":
        return conclude(opened.run, opened.before, resolved.profile, lines)
    if wishes.detach:
        if opened.supervisor is not None:
            wait_for_start(opened)
        return _detached(opened, command, lines, code=0)
    if lines.live:
        attached = opened.decision == "attach"
        ends = "Ctrl-C saves and ends the run; Ctrl-\\ leaves it running."
        lines.print(f"Ctrl-C leaves it running; `ftui stop {opened.run.name}` ends it." if attached else ends)
    before = signal.signal(signal.SIGQUIT, _leave_alone)
    if place_of(resolved.profile) is not None:  # a launcher ends what it has started, and that is this command
        signal.signal(signal.SIGTERM, lambda number, frame: _pass_on(opened, number))
    try:
        return _attended(opened, resolved.profile, lines, command)
    finally:
        signal.signal(signal.SIGQUIT, before)


def _attended(opened: OpenedRun, profile: Profile, lines: LiveOutput, command: str) -> int:
    interrupts = answered = 0
    while True:
        try:
            while answered < interrupts:  # within `try`: the second may come while the first is answered
                answered += 1
                lines.clear()
                if not _asked_to_end(opened, lines, answered):
                    return _detached(opened, command, lines, code=INTERRUPTED)
            return follow(opened, profile, lines)
        except KeyboardInterrupt:
            interrupts += 1
        except Detach:
            return _detached(opened, command, lines, code=0)


class Detach(Exception):
    """Ctrl-\\: leave the run alone."""


def _pass_on(opened: OpenedRun, number: int) -> None:
    """Send a signal to the run's supervisor, which has it save and end. Its own may not have written its name yet."""
    run = opened.run
    if opened.supervisor is not None and opened.supervisor.poll() is None:
        opened.supervisor.send_signal(number)
    elif is_alive(supervisor := read_status(run).supervisor):
        assert supervisor is not None
        os.kill(supervisor.pid, number)


def _leave_alone(number: int, frame: FrameType | None) -> None:
    raise Detach


def _asked_to_end(opened: OpenedRun, lines: LiveOutput, interrupts: int) -> bool:
    """Send the request for the first and the second Ctrl-C.

    False for the third, where no engine is running, and where this command only attached: the run is not its own.
    """
    if opened.decision == "attach":
        return False
    run, status = opened.run, read_status(opened.run)
    if interrupts > 2 or not is_running(status) or status.state.attempt <= opened.history:
        return False
    if status.state.phase == "finished":  # only its result is being pushed
        return False
    kind: type[ControlRequest] = Stop if interrupts == 1 else Abort
    write_request(run, address_request(run, status, kind, {}))
    if kind is Stop:
        lines.print("Ctrl-C: the run saves a checkpoint and ends. Again: it ends now, unsaved.")
    else:
        lines.print("Ctrl-C again: the run ends now, unsaved. Once more leaves it alone.")
    return True


def _detached(opened: OpenedRun, command: str, lines: LiveOutput, *, code: int) -> int:
    lines.clear()
    for line in farewell(opened.run, command):
        lines.print(line)
    return code


def command_for(run: Run, text: str, overrides: Sequence[str]) -> str:
    """The shortest command that opens this very run: its name, unless a profile is called like that."""
    try:
        find_profile(run.name)
    except ProfileError:
        return f"ftui --run {run.name}"
    words = ["ftui", "--run", text, "--name", run.name]
    for override in overrides:
        words += ["--set", override]
    return shlex.join(words)


def _introduce(opened: OpenedRun, profile: Profile, lines: LiveOutput) -> None:
    run, state = opened.run, opened.before
    match opened.decision:
        case "finished":
            changed = pending_changes(run, profile)
            again = f"`--again` starts a new run with {'the profile as it is now' if changed else 'the same profile'}"
            hint = f"; `ftui resume {run.name}` continues it" if state.phase == "stopped" else ""
            lines.print(f"{run.name} has ended. {again}{hint}.")
            if changed:
                lines.print(f"The profile has changed in {', '.join(changed)}: what follows is of the one before.")
        case "attach":
            status = read_status(run)
            holder = status.engine or status.supervisor
            by = f" (process {holder.pid}{f' on {shown(state.host)}' if state.host else ''})" if holder else ""
            lines.print(f"{run.name} is running{by}; attached to it: {describe.history(state)}")
            if keys := pending_changes(run, profile):
                lines.print(f"The profile has changed in {', '.join(keys)}: a running run keeps what it started with.")
        case "resume":
            verb = "resuming" if has_begun(state) else "starting again"
            lines.print(f"{verb} {run.name}: {describe.history(state)}")
        case "start":
            lines.print(f"starting {run.name} in {shown(str(run.folder))}")
    if opened.supervisor is not None and (warning := kills_on_logout()):
        lines.print(f"warning: {warning}")


def farewell(run: Run, command: str) -> list[str]:
    """What a person needs to know who leaves a run alone."""
    status = read_status(run)
    begins = status.state.max_steps is None
    more = "; it reads its rows first, and may still refuse them" if begins else ""
    lines = [
        f"Detached: the run {run.name} keeps running{more}." if is_running(status) else f"Detached from {run.name}.",
        f"  attach again   {shown(command)}",
        f"  look           ftui status {run.name}",
    ]
    if is_running(status):
        lines.append(f"  save and end   ftui stop {run.name}")
    return lines
