"""Child runs: a run of its own that continues from a checkpoint of another one, which stays as it is."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from ftui.errors import ProfileError, UsageError
from ftui.launch.check_start import check_may_start
from ftui.launch.open_run import check_moved_files, create, stored_profile, successors
from ftui.profile.consent import keep_consents
from ftui.profile.layers import ResolvedProfile
from ftui.profile.schema import Profile
from ftui.profile.serialize import keep_batch, weights_difference
from ftui.runs.checkpoint_folders import Checkpoint, checkpoints_in, fault, read_manifest, step_of
from ftui.runs.checkpoint_index import read_stored_evaluation
from ftui.runs.events import RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run, RunFacts
from ftui.text import shown

SAME_EPOCH = 0.01


@dataclass(frozen=True)
class ForkOrigin:
    """Where a child run begins: the checkpoint, and what its run's id and name are."""

    run: Run
    facts: RunFacts
    checkpoint: Checkpoint


def find_origin(run: Run, checkpoint: str | None) -> ForkOrigin:
    """The named checkpoint of a run, or its newest valid one.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    present = checkpoints_in(run.checkpoints)
    steps = ", ".join(str(c.step) for c in reversed(present)) or "none"
    if checkpoint is None:
        chosen = next((c for c in present if _is_whole(c)), None)
        if chosen is None:
            raise UsageError(f"{run.name} has no valid checkpoint to continue from.", hint=f"There are: {steps}.")
        return ForkOrigin(run, run.read_facts(), chosen)
    number = step_of(checkpoint)
    chosen = next((c for c in present if c.step == number), None)
    if chosen is None:
        raise UsageError(f"{run.name} has no checkpoint-{number}.", hint=f"There are: {steps}.")
    if problem := fault(chosen.path):
        raise UsageError(f"{chosen.path.name} of {run.name} is damaged: {problem}.", hint=f"There are: {steps}.")
    return ForkOrigin(run, run.read_facts(), chosen)


def _is_whole(checkpoint: Checkpoint) -> bool:
    return fault(checkpoint.path) is None and read_manifest(checkpoint.path).finite


def is_newest(origin: ForkOrigin) -> bool:
    """Whether an ordinary resume would continue from this checkpoint."""
    newest = next((c for c in checkpoints_in(origin.run.checkpoints) if _is_whole(c)), None)
    return newest == origin.checkpoint


def fork(
    origin: ForkOrigin, resolved: ResolvedProfile, name: str | None, *, may_differ: bool, allow: Collection[str] = ()
) -> tuple[Run, list[str]]:
    """Make the child run (NAME, or the parent's name with the first free number); returns it and what differs.

    Raises:
        UsageError: the name is taken.
        ProfileError: the profiles differ and may not, or the model's code may not be run (`allow` does not say so).
    """
    check_may_start(resolved.profile, allow, parent_id=origin.facts.run_id)
    before = stored_profile(origin.run)
    if not may_differ:
        resolved = replace(resolved, profile=keep_batch(before, resolved.profile))
    differences = weights_difference(before, resolved.profile)
    if differences and not may_differ:
        raise ProfileError(
            f"{origin.run.name} cannot continue with other values:\n" + "\n".join(f"  {line}" for line in differences),
            hint="Use the same values, or --fork to make a child run that continues with the new ones.",
        )
    more = [*(["--fork"] if may_differ else []), *([f"--name={name}"] if name else [])]
    check_moved_files(resolved, "ftui", "resume", origin.run.name, f"--from={origin.checkpoint.path.name}", *more)
    facts = RunFacts(
        run_id="", name="", created=0.0, profile_name=shown(resolved.path.stem), parent_run=origin.facts.run_id,
        parent_name=origin.run.name, parent_checkpoint=origin.checkpoint.path.name, fork=may_differ,
    )  # fmt: skip
    runs = [Run(origin.run.folder.with_name(name))] if name else successors(origin.run)
    for run in runs:
        if not run.folder.exists() and create(run, resolved, facts, _inherited(origin)):
            keep_consents(resolved.profile, run.read_facts().run_id)  # before it is opened
            return run, differences
    raise UsageError(f"There is a run named {name!r} already.", hint="Use another --name.")


def describe_epochs(parent: Run, checkpoint: Checkpoint, profile: Profile, differences: Collection[str]) -> str:
    """How many epochs a fork comes to, where its batch makes other epochs of its parent's steps; else "".

    The number of steps is counted for all the rows from the first step on, by the fork's own batch.
    """
    done = read_stored_evaluation(checkpoint.path).epoch
    starts = [record for record in Tail(parent.journal).records() if isinstance(record, RunStarted)]
    if done is None or not starts or profile.curriculum or any(line.startswith("data.") for line in differences):
        return ""
    started = starts[-1]
    num_sequences = started.num_sequences or started.steps_per_epoch * started.effective_batch
    per_epoch = math.ceil(num_sequences / profile.effective_batch)
    asked = None if profile.train.max_steps is not None else profile.train.num_train_epochs or 1
    end = profile.train.max_steps if asked is None else math.ceil(asked * per_epoch)
    assert end is not None, "one of both says where it ends"
    return epochs_of_fork(done, checkpoint.step, checkpoint.step / per_epoch, end, end / per_epoch, asked)


def epochs_of_fork(done: float, step: int, planned: float, end: int, planned_end: float, asked: float | None) -> str:
    """How many epochs a fork comes to, where its plan counts others than were trained; else "".

    Args:
        done: epochs that are trained at `step`, where it begins; its plan counts `planned` for that many steps.
        end: its last step, which its plan counts as `planned_end` epochs.
        asked: train.num_train_epochs; `None` where train.max_steps says where it ends.
    """
    if abs(done - planned) < SAME_EPOCH or end <= step:
        return ""
    seen, total = f"{done:.2f} epochs are trained at step {step}", done + planned_end - planned
    if asked is None:
        return f"{seen}; it ends at step {end} after {total:.2f} epochs."
    words = f"{seen}, and it ends at step {end} after {total:.2f}, not {asked:g}"
    fitting = step + round((asked - done) * (end - step) / (planned_end - planned))
    if fitting > step:
        return f"{words}; --set train.max_steps={fitting} ends it after {asked:g}."
    return f"{words}."


def _inherited(origin: ForkOrigin) -> list[Checkpoint]:
    """The checkpoint, and the best one before it: final/ may be made from that."""
    best = read_stored_evaluation(origin.checkpoint.path).best_step
    others = [c for c in checkpoints_in(origin.run.checkpoints) if c.step == best and c != origin.checkpoint]
    return [origin.checkpoint, *(c for c in others if fault(c.path) is None)]
