"""From a profile to a run that is running: start it, attach to it, resume it, or say that it has ended."""

import contextlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import msgspec

from ftui.errors import DiskError, FtuiError, LostRunError, ProfileError, UsageError
from ftui.launch.check_start import check_may_start
from ftui.launch.claim_cards import claimed_cards
from ftui.launch.manage_runs import sweep_removed, unarchive
from ftui.profile.checks.messages import profile_error
from ftui.profile.consent import keep_consents
from ftui.profile.layers import ResolvedProfile, resolve
from ftui.profile.origins import Key
from ftui.profile.paths import FILES, FOLDERS
from ftui.profile.presets import find_profile, shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.serialize import flat_values, keep_batch, to_toml, weights_difference
from ftui.profile.tiers import tier_layer
from ftui.rollouts.child_files import copy_what_was_measured
from ftui.runs.checkpoint_folders import Checkpoint, checkpoints_in, link_copy
from ftui.runs.run_folder import (
    LONGEST_NAME,
    Run,
    RunFacts,
    all_runs,
    check_name,
    find_run,
    name_from,
    new_run_id,
    runs_root,
)
from ftui.runs.state import RunState, has_begun, has_ended
from ftui.runs.status import Status, Watch, is_running, judge, read_status, refuse_if_elsewhere
from ftui.supervisor.attempt import last_lines
from ftui.supervisor.spawn import launch
from ftui.system.file_tree import move_out, rename_folder
from ftui.system.files import Lock, make_private_folder, replace_file, sync_path, try_lock
from ftui.system.user_folders import note_root
from ftui.system.volume import RESERVE, check_room, disk_error, is_disk_full
from ftui.text import did_you_mean, shown, toml_value

Decision = Literal["start", "attach", "resume", "finished"]

SETTLE_SECONDS = 10.0  # an engine that has written its ending is given this long to leave
START_SECONDS = 30.0  # a supervisor writes its first line in a fraction of a second; a loaded pod may need more


@dataclass(frozen=True)
class OpenedRun:
    """A run that was opened, how it stood then (`before`), and a watch that has seen all there was.

    Attempts up to `history` are old news; `supervisor` is the process we started, if we did.
    """

    run: Run
    decision: Decision
    before: RunState
    watch: Watch
    history: int
    supervisor: "subprocess.Popen[bytes] | None" = None


def locate_run(
    text: str, name: str | None, overrides: Sequence[str], tier: str | None = None
) -> tuple[Path, ResolvedProfile]:
    """The run's folder and the profile: from a file, a shipped profile, or an existing run of that name.

    `tier` names one that stands below the profile; a run's own has every key, and nothing can stand below it.
    """
    try:
        path = find_profile(text)
    except ProfileError as no_profile:
        try:
            run = find_run(text)
        except UsageError:
            raise no_profile if os.path.exists(text) or "/" in text else _no_such_name(text, no_profile) from None
        if tier is not None:
            raise UsageError(f"{run.name} is a run and has all its values: --tier goes with a profile.") from None
        run.check()
        folder = runs_root() / check_name(name) if name else run.folder
        return folder, resolve(run.profile, overrides=overrides)
    below = [] if tier is None else [tier_layer(tier)]
    resolved = resolve(path, overrides=overrides, below=below)
    own = name or (path.absolute().parent.name if _is_stored(path) else resolved.profile.run.name)
    return runs_root() / (check_name(own) if own else name_from(path.stem)), resolved


def _no_such_name(text: str, no_profile: ProfileError) -> ProfileError:
    names = [*(preset.name for preset in shipped_presets()), *(run.name for run in all_runs())]
    return ProfileError(
        f"There is no profile or run {text!r}.", hint=did_you_mean(text, names).rstrip() or no_profile.hint
    )


def _is_stored(path: Path) -> bool:
    """Whether a profile is the one in the folder of a run, which goes by the folder's name, however that came about."""
    run = Run(path.absolute().parent)
    return run.profile == path.absolute() and run.facts.is_file()


def decide(folder: Path, *, again: bool = False, resume_stopped: bool = False) -> tuple[Run, Decision]:
    """The run in `folder` and what `ftui run` does with it; with `again`, of the first NAME-2 ... to continue.

    Raises:
        LostRunError: another machine is working on it.
    """
    for run in chain([Run(folder)], successors(Run(folder))):
        if not run.facts.exists():
            return run, "start"
        status = _wait_until_settled(run)
        if is_running(status):
            return run, "attach"
        state, stopped = status.state, status.state.phase == "stopped"
        if not has_ended(state) or (stopped and (resume_stopped or not has_begun(state))):
            refuse_if_elsewhere(run, status)
            return run, "resume"
        if not again:
            return run, "finished"
    raise AssertionError("names do not run out")


def successors(run: Run) -> Iterator[Run]:
    """NAME-2, NAME-3 ... beside a run."""
    for number in count(2):
        ending = f"-{number}"
        yield Run(run.folder.with_name(run.name[: LONGEST_NAME - len(ending)] + ending))


def _wait_until_settled(run: Run) -> Status:
    """The run's status; one that has ended is given time to let go of its memory and locks."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        status = read_status(run)
        if status.state.exit_code is None or not is_running(status) or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def check_files(resolved: ResolvedProfile) -> None:
    """Whether all that the profile names on this disk is there, before an engine is started that would look for it.

    Raises:
        ProfileError: something is not.
    """
    if resolved.missing_files:
        raise profile_error(resolved.missing_files, resolved.path)


def check_moved_files(resolved: ResolvedProfile, *command: str) -> None:
    """As `check_files`, for a run that goes on: its files may have been moved since.

    `command` is the one that continues the run; the hint is that command with the files' new places, and with all else
    that was set on the command line.

    Raises:
        ProfileError: something is not there.
    """
    words, values = list(command), resolved.profile.model_dump(mode="json")
    for key, origin in resolved.origins.items() if resolved.missing_files else ():
        if origin.layer == "--set" and key[:2] not in (*FILES, *FOLDERS):
            value = _value_at(values, key)
            words += ["--set", f"{'.'.join(key)}={toml_value(tuple(value) if isinstance(value, list) else value)}"]
    for fault in resolved.missing_files:
        path = "PLACE/" + Path(_value_at(values, fault.key)).name
        words += ["--set", f"{'.'.join(fault.key)}{'.path' if fault.key[-1].isdecimal() else ''}={path}"]
    if resolved.missing_files:
        error = profile_error(resolved.missing_files, resolved.path)
        what = "If it was moved" if len(resolved.missing_files) == 1 else "If they were moved"
        hint = f"{what}: {shlex.join(words)}\nPLACE is the folder where it is now. Other content is refused."
        raise ProfileError(error.message, hint=hint)


def check_node_files(resolved: ResolvedProfile) -> None:
    """As `check_files`, on a machine that is not the one the run was opened on.

    Raises:
        ProfileError: something is not there.
    """
    if resolved.missing_files:
        error = profile_error(resolved.missing_files, resolved.path)
        hint = "Every node needs the files of the profile at the same path, with the same content."
        raise ProfileError(f"On {socket.gethostname()}: {error.message}", hint=hint)


def _value_at(value: Any, key: Key) -> Any:
    """What stands at a key of tables and lists."""
    for step in key:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def open_run(
    folder: Path,
    resolved: ResolvedProfile,
    *,
    again: bool = False,
    resume_stopped: bool = False,
    allow: Collection[str] = (),
) -> OpenedRun:
    """Start or resume the run in `folder` with this profile, or find it running or ended.

    Of many that try at once, one holds supervisor.lock, starts the run and hands the lock to its supervisor; the others
    find it alive. `resume_stopped` continues a run that was stopped on purpose; `allow` as in `check_consents`.

    Raises:
        ProfileError: other values would change its weights, it may not run its model's code, its budget is spent.
        LostRunError: another machine is working on it.
        DiskFullError: there is no room for what that writes.
    """
    try:
        return _open(folder, resolved, allow, again=again, resume_stopped=resume_stopped)
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise disk_error(error, f"{folder} cannot be opened", folder) from error


def _open(
    folder: Path, resolved: ResolvedProfile, allow: Collection[str], *, again: bool, resume_stopped: bool
) -> OpenedRun:
    while True:
        run, decision = decide(folder, again=again, resume_stopped=resume_stopped)
        if decision in ("start", "resume"):
            check_may_start(resolved.profile, allow, run if decision == "resume" else None)
        if decision == "start":
            check_files(resolved)
        if decision in ("start", "resume"):
            with claimed_cards(resolved.profile) as cards:
                opened = _begin(run, resolved, decision, cards)
        else:
            opened = _see(run, decision)
        if opened is not None:
            return opened


def _see(run: Run, decision: Decision) -> OpenedRun:
    watch = Watch(run)
    watch.catch_up()
    before = judge(run, watch).state
    return OpenedRun(run, decision, before, watch, history=before.attempt - 1)


def _begin(run: Run, resolved: ResolvedProfile, decision: Decision, cards: Sequence[Lock]) -> OpenedRun | None:
    """Start or resume it on these cards; `None` where somebody else does in this moment."""
    if decision == "start" and not create(run, resolved):
        return None
    seen = _see(run, decision)
    run.check()
    if decision == "resume":
        check_moved_files(resolved, "ftui", "resume", run.name)
    lock = try_lock(run.supervisor_lock)
    if lock is None:
        _wait_until_alive(run)
        return None
    try:
        if decision == "resume":
            resume(run, resolved.profile)
        keep_consents(resolved.profile, run.read_facts().run_id)
        unarchive(run)
        return replace(seen, history=seen.before.attempt, supervisor=launch(run, lock, cards))
    finally:
        os.close(lock.descriptor)  # the supervisor has its own copy


def _wait_until_alive(run: Run) -> None:
    """Somebody else is starting the run: give it the time to be seen.

    Raises:
        LostRunError: another process has the lock, and none can be seen that works on the run.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while not is_running(read_status(run)):
        if time.monotonic() > deadline:
            raise LostRunError(
                f"{run.name} is locked by a process that cannot be seen from here.",
                hint=f"It may run in another container on the same volume; `ftui status {run.name}` says where.",
            )
        time.sleep(0.05)


def create(
    run: Run, resolved: ResolvedProfile, template: RunFacts | None = None, inherited: Sequence[Checkpoint] = ()
) -> bool:
    """Make the run's folder whole in one rename; False when another process made it first.

    A child run's `template` names its parent, and `inherited` are the checkpoints it takes with it.
    """
    root = run.folder.parent
    sweep_removed(root)
    with contextlib.suppress(OSError):  # the last that a removal may leave; any other folder is not empty
        run.folder.rmdir()
    temporary = root / f".{run.name}.{secrets.token_hex(4)}.new"
    facts = template or RunFacts(run_id="", name="", created=0.0, profile_name=shown(resolved.path.stem))
    facts = msgspec.structs.replace(facts, run_id=new_run_id(), name=run.name, created=time.time())
    try:
        new = Run(make_private_folder(temporary))
        check_room(root, RESERVE)  # without it not even the start could be recorded
        replace_file(new.profile, to_toml(with_run_name(resolved.profile, run.name)).encode(), durable=True)
        for checkpoint in inherited:
            link_copy(checkpoint.path, new.checkpoints / checkpoint.path.name)
            copy_what_was_measured(Run(checkpoint.path.parents[1]), new, checkpoint)
        replace_file(new.facts, msgspec.json.encode(facts), durable=True)
        if not rename_folder(temporary, run.folder):
            move_out(temporary, run.folder, first="")  # run.json last
            sync_path(root)
    except OSError as error:
        if run.facts.exists():
            return False
        if run.folder.exists():
            raise UsageError(f"{run.folder} exists and is not a run.", hint="Use another --name.") from error
        raise DiskError(f"{run.folder} cannot be made: {error}.", hint="FTUI_RUNS names the folder of runs.") from error
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)
    note_root(root)
    return True


def with_run_name(profile: Profile, name: str) -> Profile:
    """The profile with the run's real name in it, so that the stored copy opens the same run."""
    return profile.model_copy(update={"run": profile.run.model_copy(update={"name": name})})


def resume(run: Run, profile: Profile) -> None:
    """Take over what may differ from the run's own profile.

    Raises:
        ProfileError: something that affects the weights differs, and there is a checkpoint it would not fit.
        DiskFullError: there is no room for the records of another attempt.
    """
    before = stored_profile(run)
    profile = keep_batch(before, profile)
    changes = weights_difference(before, profile)
    if changes and checkpoints_in(run.checkpoints):
        raise ProfileError(
            f"{run.name} cannot be resumed with other values:\n" + "\n".join(f"  {change}" for change in changes),
            hint="Use the same values, --fork for a child run with the new ones, or --name for a new run.",
        )
    check_room(run.folder, RESERVE)
    replace_file(run.profile, to_toml(with_run_name(profile, run.name)).encode(), durable=True)


def stored_profile(run: Run) -> Profile:
    """The profile in a run's folder.

    Raises:
        ProfileError: somebody has edited it, and it is wrong now.
    """
    return resolve(run.profile).profile


def pending_changes(run: Run, profile: Profile) -> list[str]:
    """Keys in which a running run's profile differs from this one: they wait for its next resume."""
    before, current = flat_values(stored_profile(run)), flat_values(with_run_name(profile, run.name))
    return [".".join(key) for key in before | current if before.get(key) != current.get(key)]


def wait_for_start(opened: OpenedRun) -> None:
    """Wait until the supervisor that was started has written; raises as `check_start`."""
    deadline = time.monotonic() + START_SECONDS
    while opened.watch.state.attempt <= opened.history:
        check_start(opened, deadline)
        time.sleep(0.05)
        opened.watch.read()


def check_start(opened: OpenedRun, deadline: float) -> None:
    """Raises FtuiError when the supervisor we started left silently, or is silent for too long."""
    supervisor = opened.supervisor
    code = None if supervisor is None else supervisor.poll()
    if not code and time.monotonic() < deadline:
        return
    if code in (0, DiskError.exit_code):
        raise DiskError(
            f"The start could not be recorded in {opened.run.folder}: the disk is full, or it fails.",
            hint="Free some space there, then give the same command.",
        )
    lines = last_lines(opened.run.folder / "supervisor.log", 0)
    raise FtuiError(
        f"The run's supervisor did not start (exit code {code}).",
        hint="It wrote:\n" + "\n".join(f"  {line}" for line in lines) if lines else "",
    )
