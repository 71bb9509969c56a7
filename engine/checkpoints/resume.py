"""Where a run goes on: its newest checkpoint that verifies, if what it was made from is still the same."""

import contextlib

from ftui.errors import DataError, FtuiError, ModelError, ProfileError
from ftui.profile.schema import Profile
from ftui.profile.sections.model import FULL_COMMIT
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, fault, read_manifest
from ftui.runs.events import CheckpointRejected
from ftui.runs.run_folder import Run

from ..runtime.event_writer import Logbook
from ..runtime.live_overrides import MICRO_BATCH
from ..training.context import TrainState

SAME = "Give the run what it was started with, or make it a run of its own with --fork."
# Name of a fingerprint: the error when it differs, and what it is the fingerprint of.
MADE_FROM: dict[str, tuple[type[FtuiError], str]] = {
    "profile": (ProfileError, "a key of the profile that affects the weights"),
    "data": (DataError, "the training rows"),
    "evaluation_data": (DataError, "the evaluation rows"),
    "tokenizer": (DataError, "the tokenizer or its chat template"),
    "base_model": (ModelError, "the base model"),
    "adapter": (ModelError, "the adapter it went on from"),
    "losses": (ModelError, "the base model's loss on the rows, which their order follows,"),
}


def find_checkpoint(run: Run, logbook: Logbook) -> Checkpoint | None:
    """The newest valid checkpoint; nothing stays above it, so that history is one line.

    Damaged ones go to quarantine and whole ones that are no part of this run to superseded/, each with its reason in
    the journal.
    """
    sweep(run)
    found, rejected = checkpoint_folders.newest_valid(run.checkpoints, run.read_facts().family)
    for checkpoint, reason in rejected:
        place = checkpoint_folders.quarantine(checkpoint)
        logbook.event(
            CheckpointRejected(
                path=f"checkpoints/{checkpoint.path.name}",
                moved_to=str(place.relative_to(run.folder)),
                reason=reason,
            ),
            durable=True,
        )
    checkpoint_folders.supersede(run.checkpoints, found.step if found else -1)
    return found


def as_begun(run: Run, profile: Profile) -> Profile:
    """The profile of a resumed run, its hub model at the commit it began with: the branch may have moved since.

    A commit that the profile names itself stays, and so does the branch for the first attempt of a fork.
    """
    if FULL_COMMIT.fullmatch(profile.model.revision or ""):
        return profile
    known = run.read_facts().family
    whole = (one for one in checkpoint_folders.listed(run.checkpoints) if not fault(one.path, run_id=known, quick=True))
    newest = next(whole, None)
    if newest is None or is_fork(run, newest):
        return profile
    base = read_manifest(newest.path).fingerprints.get("base_model", "")
    if not FULL_COMMIT.fullmatch(base):  # a local folder, by the hash of its files
        return profile
    return profile.model_copy(update={"model": profile.model.model_copy(update={"revision": base})})


def sweep(run: Run) -> None:
    """Delete what earlier attempts of the engine left half-written."""
    checkpoint_folders.sweep(run.checkpoints)
    checkpoint_folders.sweep(run.folder)
    for ours in (run.beat, run.reserve, run.losses):
        for path in ours.parent.glob(f".{ours.name}.*.tmp"):
            with contextlib.suppress(OSError):
                path.unlink()


def is_fork(run: Run, checkpoint: Checkpoint) -> bool:
    """Whether this is the first attempt of a run that may differ from the one the checkpoint is of."""
    facts = run.read_facts()
    return facts.fork and read_manifest(checkpoint.path).run_id != facts.run_id


def check_same(run: Run, checkpoint: Checkpoint, now: dict[str, str]) -> list[str]:
    """The names of the fingerprints that differ from the checkpoint's: none, but for the first attempt of a fork.

    Raises:
        ProfileError, DataError, ModelError: something changed, and the run is no fork.
    """
    then, differences = read_manifest(checkpoint.path).fingerprints, []
    for name, (error, what) in MADE_FROM.items():
        if then.get(name) == now.get(name):
            continue
        if not is_fork(run, checkpoint):
            raise error(f"Since {checkpoint.path.name} {what} changed; a resumed run must be the same run.", hint=SAME)
        differences.append(name)
    return differences


def forked(state: TrainState, differences: list[str]) -> None:
    """Let go of what belonged to the parent only: what was set by letters, the rate that a plateau had left, and a best
    that was measured otherwise."""
    state.plateau = {}
    state.settings = [setting for setting in state.settings if setting.name == MICRO_BATCH]
    state.bad_evaluations = state.bad_steps = 0  # its parent's patience may be at its end
    if "evaluation_data" in differences:
        state.best_loss = state.best_step = state.last_loss = None
        state.bad_evaluations, state.evaluated_step = 0, -1
