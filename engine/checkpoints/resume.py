"""How a run resumes: from its newest checkpoint that verifies, if what it was made from is still the same."""

import contextlib

from ftui.errors import DataError, FtuiError, ModelError, ProfileError
from ftui.launch.fork import epochs_of_fork
from ftui.profile.schema import Profile
from ftui.profile.sections.model import FULL_COMMIT
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, fault, read_manifest
from ftui.runs.events import CheckpointRejected
from ftui.runs.run_folder import Run

from ..distributed.node_files import bring_checkpoint
from ..distributed.process_group import Action, ProcessGroup, RankCommand
from ..distributed.rank_state import gather_rank_states
from ..models.model_parts import ModelParts
from ..optim import loss_scaler
from ..optim.optimizer import allocate_state
from ..planning.curriculum_plan import RunPlan
from ..runtime.event_writer import EventWriter
from ..runtime.request_inbox import answers_in
from ..system.train_state import MICRO_BATCH, TrainState
from ..training.triggers import epoch_at
from .checkpoint import restore
from .reproducibility import Provenance, machine_differences, note_differences

SAME = "Give the run what it was started with, or make it a run of its own with --fork."
# Name of a fingerprint: the error when it differs, and what it is the fingerprint of.
MADE_FROM: dict[str, tuple[type[FtuiError], str]] = {
    "profile": (ProfileError, "a key of the profile that affects the weights"),
    "data": (DataError, "the training rows"),
    "evaluation_data": (DataError, "the evaluation rows"),
    "tokenizer": (DataError, "the tokenizer or its chat template"),
    "base_model": (ModelError, "the base model"),
    "adapter": (ModelError, "the adapter it continued from"),
    "reward_model": (ModelError, "the reward model"),
    "losses": (ModelError, "the base model's loss on the rows, which their order follows,"),
    "reference": (ModelError, "what the reference model says of the answers"),
}


def resume(
    run: Run,
    parts: ModelParts,
    state: TrainState,
    ranks: ProcessGroup,
    provenance: Provenance,
    plan: RunPlan,
    profile: Profile,
    events: EventWriter,
) -> Checkpoint | None:
    """Put the run back where its newest checkpoint left it; returns that checkpoint, if there is one.

    Raises:
        ProfileError, DataError, ModelError: what the run is made from has changed, or a fork does not fit.
    """
    checkpoint = find_checkpoint(run, events)
    ranks.order(RankCommand(Action.RESTORE, 0 if checkpoint is None else checkpoint.step))
    if checkpoint is None:
        allocate_state(parts.optimizer)
    else:
        bring_checkpoint(ranks, run, checkpoint.step)
        differences = check_same(run, checkpoint, provenance.fingerprints)
        if is_fork(run, checkpoint):
            _restore_fork(parts, state, checkpoint, differences, plan, profile)
            words = "" if profile.draws_prompts else _describe_epochs(state, plan, profile)
            if words:
                events.warn(words)
        else:
            restore(parts, state, checkpoint)
        content = [f"forked with other content at step {state.step}: {', '.join(differences)}"] if differences else []
        note_differences(state, machine_differences(checkpoint, provenance.environment), content)
    loss_scaler.begin(state, parts.hardware.precision)
    gather_rank_states(ranks, parts, state.step)  # all ranks begin with the same weights, or do not begin
    state.replay(answers_in(run))
    events.num_steps = state.step
    return checkpoint


def _restore_fork(
    parts: ModelParts,
    state: TrainState,
    checkpoint: Checkpoint,
    differences: list[str],
    plan: RunPlan,
    profile: Profile,
) -> None:
    """Put back what fits the new profile.

    Raises:
        ModelError, ProfileError: it does not fit.
    """
    try:
        restore(parts, state, checkpoint)
    except (RuntimeError, ValueError, KeyError) as error:  # torch's ways to say that shapes or names differ
        raise ModelError(
            f"{checkpoint.path.name} does not fit the forked model: {error}",
            hint="A fork keeps the shape of the weights (adapter.r, the base model); start a new run otherwise.",
        ) from error
    reset_fork(state, differences)
    if not profile.draws_prompts:
        state.prompts_drawn = None
    if profile.ppo.target is None or state.initial_kl_coef not in (None, profile.ppo.kl_coef):
        state.kl_coef = None  # the profile says another one now, or that it stays as it is
    if state.epoch is not None:
        state.epoch_shift = 0.0
        state.epoch_shift = state.epoch - epoch_at(plan, state, checkpoint.step)
    if plan.max_steps <= checkpoint.step:
        raise ProfileError(
            f"The run would end at step {plan.max_steps}, and it continues from step {checkpoint.step}.",
            hint="Raise train.max_steps or train.num_train_epochs.",
        )


def _describe_epochs(state: TrainState, plan: RunPlan, profile: Profile) -> str:
    """How many epochs the fork comes to: what was said before it started, and for other rows too."""
    planned, train = plan.epoch_of(state.step), profile.train
    asked = None if train.max_steps is not None or profile.curriculum else train.num_train_epochs or 1
    end = plan.epoch_of(plan.max_steps)
    return epochs_of_fork(planned + state.epoch_shift, state.step, planned, plan.max_steps, end, asked)


def find_checkpoint(run: Run, events: EventWriter) -> Checkpoint | None:
    """The newest valid checkpoint; nothing stays above it, so that history is one line.

    Damaged ones go to quarantine and whole ones that are no part of this run to superseded/, each with its reason in
    the journal.
    """
    sweep(run)
    newest, rejected = checkpoint_folders.newest_valid(run.checkpoints, run.read_facts().family)
    for checkpoint, reason in rejected:
        place = checkpoint_folders.quarantine(checkpoint)
        events.write(
            CheckpointRejected(
                path=f"checkpoints/{checkpoint.path.name}",
                moved_to=str(place.relative_to(run.folder)),
                reason=reason,
            ),
            durable=True,
        )
    checkpoint_folders.supersede(run.checkpoints, newest.step if newest else -1)
    return newest


def pin_commit(run: Run, profile: Profile) -> Profile:
    """The profile of a resumed run, its hub model at the commit it began with: the branch may have moved since.

    A commit that the profile names itself stays, and so does the branch for the first attempt of a fork.
    """
    if FULL_COMMIT.fullmatch(profile.model.revision or ""):
        return profile
    run_ids = run.read_facts().family
    present = checkpoint_folders.checkpoints_in(run.checkpoints)
    newest = next((c for c in present if not fault(c.path, run_id=run_ids, quick=True)), None)
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
    half_written = [
        *(path for own in (run.beat, run.reserve, run.losses, run.reference)
          for path in own.parent.glob(f".{own.stem}.*.tmp")),  # also of the parts that ranks measure
        *run.rollouts.glob(".*.tmp"),
    ]  # fmt: skip
    for path in half_written:
        with contextlib.suppress(OSError):
            path.unlink()


def is_fork(run: Run, checkpoint: Checkpoint) -> bool:
    """Whether this is the first attempt of a run that may differ from the one the checkpoint is of."""
    facts = run.read_facts()
    return facts.fork and read_manifest(checkpoint.path).run_id != facts.run_id


def check_same(run: Run, checkpoint: Checkpoint, current: dict[str, str]) -> list[str]:
    """The names of the fingerprints that differ from the checkpoint's: none, but for the first attempt of a fork.

    Raises:
        ProfileError, DataError, ModelError: something changed, and the run is no fork.
    """
    saved, differences = read_manifest(checkpoint.path).fingerprints, []
    for name, (error, subject) in MADE_FROM.items():
        if saved.get(name) == current.get(name):
            continue
        if not is_fork(run, checkpoint):
            raise error(
                f"Since {checkpoint.path.name} {subject} changed; a resumed run must be the same run.", hint=SAME
            )
        differences.append(name)
    return differences


def reset_fork(state: TrainState, differences: list[str]) -> None:
    """Drop what belonged to the parent only: settings changed by requests, the learning rate that a plateau had left,
    and a best evaluation that was measured on other rows or by another reward model."""
    state.plateau = {}
    state.settings = [setting for setting in state.settings if setting.name == MICRO_BATCH]
    state.bad_evaluations = state.bad_steps = 0  # its parent's patience may be at its end
    if differences:  # other rows may follow, or other answers be wanted: they are sampled by the weights as they are
        state.rollout, state.rollout_hash = -1, ""
    if {"evaluation_data", "reward_model"} & set(differences):
        state.forget_evaluations()
