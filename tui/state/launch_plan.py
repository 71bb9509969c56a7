"""What would happen to what was chosen (a profile, a run, one of its checkpoints), and making it happen. No Textual.

It loads pydantic (0.1 s): the screens import it when somebody is about to start a run, not before.
"""

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from ftui.errors import PREEMPTED_NOT_SAVED, PREEMPTED_SAVED, ProfileError, UsageError
from ftui.hardware.detect import find_machine
from ftui.launch.claim_cards import device_kind
from ftui.launch.fork import describe_epochs, find_origin, fork
from ftui.launch.open_run import (
    decide,
    locate_run,
    open_run,
    pending_changes,
    stored_profile,
    successors,
    wait_for_start,
    with_run_name,
)
from ftui.profile.consent import check_push_command, check_remote_code, check_reward_code
from ftui.profile.layers import ProfileLayer, ResolvedProfile, resolve
from ftui.profile.origins import ValueOrigin
from ftui.profile.schema import Profile
from ftui.profile.serialize import fewer_processes, keep_batch, weights_difference
from ftui.profile.tiers import tier_layer
from ftui.runs import checkpoint_folders
from ftui.runs.describe import place
from ftui.runs.run_folder import Run, check_name, runs_root
from ftui.runs.state import has_begun, phase_word
from ftui.runs.status import Status, is_running, read_status, run_is_running
from ftui.supervisor.nodes.node_place import find_place
from ftui.system.logind import kills_on_logout

from ..drawing.wording import place as shown_path
from .resolved_values import Value, values_of

BETWEEN = re.compile(r"\s+(?=[a-z_]+(?:\.[a-z_]+)+\s*=)")  # two overrides; a value may hold blanks and quotes
Act = Literal["start", "attach", "resume", "again", "fork"]
WAS = {"parked": "was parked", "stopped": "was stopped", "lost": "was lost"}


@dataclass(frozen=True)
class LaunchOptions:
    """What was chosen: a profile's file or a run, and what is to be different about it.

    `checkpoint` is a step of the run's; without it the newest one is meant. `tier` lies below the profile.
    """

    profile: Path | None = None
    run: Run | None = None
    checkpoint: int | None = None
    overrides: tuple[str, ...] = ()
    name: str | None = None
    tier: str | None = None

    @property
    def below(self) -> list[ProfileLayer]:
        """The layers below the profile."""
        return [] if self.tier is None else [tier_layer(self.tier)]


@dataclass(frozen=True)
class LaunchPlan:
    """What would happen: `act` to `run`, told in `sentence` and, beside it, in `notes`.

    `parent` is the run a child continues from, and `before` the profile without what was changed.
    """

    act: Act
    run: Run
    resolved: ResolvedProfile
    before: Profile
    sentence: str
    notes: tuple[str, ...] = ()
    parent: Run | None = None

    @cached_property
    def values(self) -> list[Value]:
        return values_of(self.resolved, self.before)


def plan_launch(options: LaunchOptions) -> LaunchPlan:
    """What would happen now. It may take seconds where a run has just ended or works on another machine.

    Raises:
        FtuiError: nothing can: the profile is wrong or wants code to be run, the name is taken, another machine works
            on the run.
    """
    if options.run is not None:
        plan = _for_run(options, options.run)
    else:
        assert options.profile is not None, "a profile or a run is chosen"
        folder, resolved = locate_run(str(options.profile.absolute()), options.name, options.overrides, options.tier)
        plan = _decided(options, folder, resolved)
    if plan.act == "attach":
        return plan  # nothing is started
    origin = plan.parent or plan.run
    run_id = origin.read_facts().run_id if origin.facts.exists() else None
    for check in (check_remote_code, check_push_command, check_reward_code):
        check(plan.resolved.profile, (), run_id)
    return plan


def _for_run(options: LaunchOptions, run: Run) -> LaunchPlan:
    resolved = resolve(run.profile, overrides=options.overrides)
    has_finished = read_status(run).state.phase == "finished"
    newest = newest_checkpoint(run)
    if options.checkpoint is not None and (has_finished or options.checkpoint != newest):
        return _child(options, run, resolved, options.checkpoint)
    if options.name is None or options.name == run.name:
        return _decided(options, run.folder, resolved)
    if newest is not None and not has_finished:
        return _child(options, run, resolved, newest)
    return _decided(options, run.folder.with_name(check_name(options.name)), resolved)


def _decided(options: LaunchOptions, folder: Path, resolved: ResolvedProfile) -> LaunchPlan:
    """As `ftui --run` and `ftui resume` decide; what was stopped goes on, and what has finished begins again."""
    run, decision = decide(folder, again=True, resume_stopped=True)
    resolved = _named(options, run, resolved)
    begin = "" if run.folder == folder else f"{folder.name} has finished; "
    if decision == "attach":
        return _attached(run, resolved, begin)
    if decision == "resume":
        return _resumed(options, run, resolved, begin)
    sentence = f"{begin}a new run {run.name} is started" if begin else f"Starts a new run {run.name}"
    act: Act = "again" if begin else "start"
    return LaunchPlan(
        act, run, resolved, _unchanged(options, run, resolved), f"{sentence} in {shown_path(run.folder)}.", _warnings()
    )


def _attached(run: Run, resolved: ResolvedProfile, begin: str) -> LaunchPlan:
    before = stored_profile(run)
    keys = pending_changes(run, resolved.profile)
    notes = (f"A run that is running keeps what it started with; this differs in {', '.join(keys)}.",) if keys else ()
    sentence = f"{begin}{run.name} {how_it_stands(read_status(run))}: enter attaches to it."
    return LaunchPlan("attach", run, resolved, before, sentence, notes)


def _resumed(options: LaunchOptions, run: Run, resolved: ResolvedProfile, begin: str) -> LaunchPlan:
    before = stored_profile(run)
    newest = newest_checkpoint(run)
    kept = replace(resolved, profile=keep_batch(before, resolved.profile))
    if weights_difference(before, kept.profile) and checkpoint_folders.checkpoints_in(run.checkpoints):
        return _child(options, run, resolved, newest)
    notes = _warnings()
    if kept.profile.hardware.num_processes != before.hardware.num_processes:
        shared = f"A step keeps its {kept.profile.effective_batch} sequences, whatever the number of processes."
        notes = (f"{shared} The run goes on as SAME STATE.", *notes)
    start = "it starts from its first step" if newest is None else f"it continues from checkpoint-{newest}"
    sentence = f"{begin}{run.name} {how_it_stands(read_status(run))}: {start}."
    return LaunchPlan("resume", run, kept, with_run_name(before, run.name), sentence, notes)


def fitting_options(options: LaunchOptions, plan: LaunchPlan) -> LaunchOptions:
    """The same where this machine has the GPUs of the run; else with as many processes as it has GPUs."""
    hardware, machine = plan.resolved.profile.hardware, find_machine()
    there, several = len(machine.cards), find_place(hardware.nodes, hardware.num_processes, os.environ)
    if several or not 1 <= there < hardware.num_processes or device_kind(plan.resolved.profile, machine) != "cuda":
        return options
    return replace(options, overrides=(*options.overrides, *fewer_processes(plan.resolved.profile, there)))


def _child(options: LaunchOptions, parent: Run, resolved: ResolvedProfile, step: int | None) -> LaunchPlan:
    """A run of its own that continues from another one's checkpoint.

    Raises:
        UsageError: the name is taken, or there is no checkpoint to continue from.
    """
    if step is None:
        raise UsageError(f"{parent.name} has no valid checkpoint to continue from.", hint="n gives a new run its name.")
    own_name = options.name if options.name != parent.name else None
    run = Run(parent.folder.with_name(check_name(own_name))) if own_name else first_free(parent)
    if run.folder.exists():
        raise _taken(run)
    sentence = f"A child run {run.name} continues from checkpoint-{step} of {parent.name}, which stays as it is."
    notes, before = _warnings(), stored_profile(parent)
    kept = replace(resolved, profile=keep_batch(before, resolved.profile))
    resolved = resolved if weights_difference(before, kept.profile) else kept
    differences = weights_difference(before, resolved.profile)
    origin = checkpoint_folders.Checkpoint(parent.checkpoints / f"checkpoint-{step}", step)
    if epochs := describe_epochs(parent, origin, resolved.profile, differences):
        notes = (epochs, *notes)
    if differences:
        notes = (f"{parent.name} itself cannot resume with different training values.", *notes)
    if run_is_running(parent):
        notes = (f"{parent.name} is running: both would share this machine.", *notes)
    return LaunchPlan(
        "fork", run, _named(options, run, resolved), with_run_name(before, run.name), sentence, notes, parent=parent
    )


def first_free(parent: Run) -> Run:
    """The first run beside `parent` that could be its child: no folder has its name."""
    return next(run for run in successors(parent) if not run.folder.exists())


def _named(options: LaunchOptions, run: Run, resolved: ResolvedProfile) -> ResolvedProfile:
    """With the name that the run gets, wherever it comes from."""
    origins = dict(resolved.origins)
    if run.name != resolved.profile.run.name:
        origins[("run", "name")] = ValueOrigin("--name" if run.name == options.name else "default")
    return replace(resolved, profile=with_run_name(resolved.profile, run.name), origins=origins)


def _unchanged(options: LaunchOptions, run: Run, resolved: ResolvedProfile) -> Profile:
    """The same profile without the overrides; with them where only they make it whole."""
    try:
        return with_run_name(resolve(resolved.path, below=options.below).profile, run.name)
    except ProfileError:
        return resolved.profile


def _warnings() -> tuple[str, ...]:
    warning = kills_on_logout()
    return (warning,) if warning else ()


def how_it_stands(status: Status) -> str:
    """`was parked at step 120/400`."""
    state = status.state
    if is_running(status):
        return f"is running ({phase_word(state.phase)}, {place(state)})"
    if state.attempt == 0:
        return "was opened and never started"
    if state.exit_code in (PREEMPTED_SAVED, PREEMPTED_NOT_SAVED):
        return f"was pre-empted at {place(state)}"
    return f"{WAS.get(state.phase, phase_word(state.phase))} at {place(state)}"


def newest_checkpoint(run: Run) -> int | None:
    """The step an ordinary resume would continue from, by a quick look: the engine reads every byte before it does."""
    for checkpoint in checkpoint_folders.checkpoints_in(run.checkpoints):
        try:
            is_whole = checkpoint_folders.fault(checkpoint.path, quick=True) is None
            if is_whole and checkpoint_folders.read_manifest(checkpoint.path).finite:
                return checkpoint.step
        except FileNotFoundError:  # a running run has just deleted it
            continue
    return None


def carry_out(options: LaunchOptions, shown: LaunchPlan) -> Run:
    """Make happen what was shown; returns the run to watch.

    Raises:
        FtuiError: it cannot be, things stand otherwise now, or the run's supervisor does not start.
    """
    now = plan_launch(options)
    if now.act != "attach" and (now.act, now.run) != (shown.act, shown.run):
        raise UsageError("Things have changed in this moment.", hint="Look again at what would happen, then enter.")
    run = now.run
    if now.parent is not None:
        origin = find_origin(now.parent, None if options.checkpoint is None else str(options.checkpoint))
        differs = bool(weights_difference(stored_profile(now.parent), now.resolved.profile))
        run, _ = fork(origin, now.resolved, run.name, may_differ=differs)
    opened = open_run(run.folder, now.resolved, resume_stopped=True)
    if opened.supervisor is not None:
        wait_for_start(opened)  # until then the live view would show how the attempt before ended
    return opened.run


def check_new_name(options: LaunchOptions, text: str) -> str:
    """The name, if it is free, or the one the run has anyway.

    Raises:
        UsageError: it is not safe as a folder's name, or there is such a run.
    """
    name = check_name(text.strip())
    run = Run((runs_root() if options.run is None else options.run.folder.parent) / name)
    if run.folder.exists() and name != _own_name(options) and (not run.facts.exists() or _has_its_name(run)):
        raise _taken(run)
    return name


def _has_its_name(run: Run) -> bool:
    """Whether another run cannot take the name: this one is running, or its training began."""
    status = read_status(run)
    return is_running(status) or has_begun(status.state)


def _own_name(options: LaunchOptions) -> str:
    if options.run is not None:
        return options.run.name
    return locate_run(str(options.profile), None, options.overrides, options.tier)[0].name


def _taken(run: Run) -> UsageError:
    if not run.facts.exists():
        return UsageError(f"{run.folder} exists and is not a run.", hint="Give another name.")
    words = f"There is a run {run.name}: it {how_it_stands(read_status(run))}."
    return UsageError(words, hint="Give another name; to resume that run, choose it in the list.")


def split_overrides(text: str) -> tuple[str, ...]:
    """The single ones of `section.key=value section.key=value`."""
    return tuple(part for part in BETWEEN.split(text.strip()) if part)


def with_overrides(options: LaunchOptions, text: str) -> LaunchOptions:
    """The same with these overrides behind those before them.

    Raises:
        FtuiError: the profile is not valid with them; every fault is named.
    """
    changed = replace(options, overrides=(*options.overrides, *split_overrides(text)))
    path = options.run.profile if options.run is not None else options.profile
    assert path is not None, "a profile or a run is chosen"
    resolve(path, overrides=changed.overrides, below=options.below)
    return changed
