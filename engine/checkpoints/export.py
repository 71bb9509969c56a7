"""The result: RUN/final, made of the best weights or the last, with all that is needed to use them."""

from pathlib import Path

from ftui.profile.schema import Profile
from ftui.runs import checkpoint_folders
from ftui.runs.run_folder import Run
from ftui.system.checked_write import Pieces

from ..distributed.node_files import bring_checkpoint
from ..distributed.process_group import Action, RankCommand
from ..models.model_parts import ModelParts
from ..models.weights import is_adapted, write_weights
from ..planning.curriculum_plan import RunPlan
from ..runtime.event_writer import EventWriter
from ..system.environment import versions
from ..system.train_state import TrainState
from ..training.evaluate import non_finite
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from ..training.triggers import epoch_at
from .checkpoint import CheckpointManager, check_finite, read_own_weights
from .model_card import CARD, CardFacts, evaluation_at, read_journal, write_card


def export(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    state: TrainState,
    events: EventWriter,
    generator: TextGenerator,
    checkpoints: CheckpointManager,
) -> tuple[int, float | None]:
    """Choose the weights, answer the sample prompts with them, write final/; returns their step and evaluation loss.

    Raises:
        NonFiniteError: the weights would be the last ones, and one of them, or their newest evaluation, is NaN or
            infinite.
    """
    step, loss = _choose_weights(run, profile, parts, state, events, checkpoints)
    generator.answer(profile.eval.sample_prompts)
    events.set_phase("saving", "final")
    card = write_card(_facts(run, profile, parts, state, data, step, loss, checkpoints.provenance.fingerprints))

    def write(folder: Path) -> dict[str, Pieces]:
        (folder / CARD).write_text(card)
        return write_weights(parts.model, data.tokenizer, folder)

    checkpoints.publish_final(write)
    return step, loss


def _choose_weights(
    run: Run,
    profile: Profile,
    parts: ModelParts,
    state: TrainState,
    events: EventWriter,
    checkpoints: CheckpointManager,
) -> tuple[int, float | None]:
    """Load the best checkpoint's weights where the profile says so; returns their step and evaluation loss."""
    best = state.best_step if profile.eval.load_best_model_at_end else None
    if best is not None and best != state.step:
        folder = run.checkpoints / f"checkpoint-{best}"
        problem = checkpoint_folders.fault(folder)
        if problem is None:
            checkpoints.ranks.order(RankCommand(Action.READ, best))
            bring_checkpoint(checkpoints.ranks, run, best)
            read_own_weights(parts, folder)
            return best, state.best_loss
        events.warn(f"checkpoint-{best}, the best, is damaged ({problem}): final/ has the last weights")
    has_finite_weights = check_finite(parts, checkpoints.ranks)
    if not (state.last_is_finite and has_finite_weights):
        kept = "is not written"
        if checkpoint_folders.fault(run.final, quick=True) is None:  # of an earlier stop
            kept = f"stays that of step {checkpoint_folders.read_manifest(run.final).step}"
        what = (
            f"final/ {kept}: a trained weight"
            if not has_finite_weights
            else (f"final/ {kept}: the evaluation loss at step {state.evaluated_step}")
        )
        raise non_finite(what, profile, parts.hardware)
    return state.step, state.last_loss if state.evaluated_step == state.step else None


def _facts(
    run: Run, profile: Profile, parts: ModelParts, state: TrainState, data: TrainingData, step: int,
    loss: float | None, fingerprints: dict[str, str],
) -> CardFacts:  # fmt: skip
    start, evaluations = read_journal(run, state.step)
    evaluation = evaluation_at(evaluations, step)
    return CardFacts(
        name=run.name,
        kind="adapter" if is_adapted(parts.model) else "model",
        profile=profile,
        weights=describe_weights(step, state, data.plan),
        loss_before=state.loss_before,
        loss=loss,
        fingerprints=fingerprints,
        versions=versions(),
        start=start,
        measures={} if evaluation is None else evaluation.extras,
        score=_describe_score(parts, data) if profile.gives_scores else "",
    )


def describe_weights(step: int, state: TrainState, plan: RunPlan) -> str:
    """Where in the run the weights of `step` stood: the best ones are older than the last."""
    if state.prompts_drawn is not None and step != state.step:  # how many there were by then is not kept
        return f"step {step} of {state.step}"
    return f"step {step} of {state.step} (epoch {epoch_at(plan, state, step):.2f})"


def _describe_score(parts: ModelParts, data: TrainingData) -> str:
    """What whoever loads a reward model has to know. (An adapter has no config that could say it.)"""
    padding, number = data.tokenizer.pad_token, data.tokenizer.pad_token_id
    load = "AutoPeftModelForSequenceClassification" if is_adapted(parts.model) else "AutoModelForSequenceClassification"
    config = f", config.pad_token_id = {number}" if is_adapted(parts.model) else ""
    return f"at the last token of prompt and answer; {load}, num_labels = 1, padded with `{padding}`{config}"
