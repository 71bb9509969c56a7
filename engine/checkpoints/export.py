"""The result: RUN/final, made of the best weights or the last, with all that is needed to use them."""

from pathlib import Path

from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs import checkpoint_folders
from ftui.runs.run_folder import Run
from ftui.system.checked_write import Pieces

from ..models.model_parts import ModelParts
from ..models.weights import is_adapted, read_weights, write_weights
from ..planning.curriculum_plan import RunPlan
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.evaluate import non_finite
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from ..training.triggers import epoch_at
from .checkpoint import CheckpointManager


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
        NonFiniteError: the weights would be the last ones, and their newest evaluation is NaN or infinite.
    """
    step, loss = _choose_weights(run, profile, parts, state, events)
    generator.answer(profile.eval.sample_prompts)
    events.set_phase("saving", "final")
    card = _model_card(run, profile, parts, state, data, step, loss)

    def write(folder: Path) -> dict[str, Pieces]:
        (folder / "README.md").write_text(card)
        return write_weights(parts.model, data.tokenizer, folder)

    checkpoints.publish_final(write)
    return step, loss


def _choose_weights(
    run: Run, profile: Profile, parts: ModelParts, state: TrainState, events: EventWriter
) -> tuple[int, float | None]:
    """Load the best checkpoint's weights where the profile says so; returns their step and evaluation loss."""
    best = state.best_step if profile.eval.load_best_model_at_end else None
    if best is not None and best != state.step:
        folder = run.checkpoints / f"checkpoint-{best}"
        problem = checkpoint_folders.fault(folder)
        if problem is None:
            read_weights(parts.model, folder)
            return best, state.best_loss
        events.warn(f"checkpoint-{best}, the best, is damaged ({problem}): final/ has the last weights")
    if not state.last_is_finite:
        kept = "is not written"
        if checkpoint_folders.fault(run.final, quick=True) is None:  # of an earlier stop
            kept = f"stays that of step {checkpoint_folders.read_manifest(run.final).step}"
        what = f"final/ {kept}: the evaluation loss at step {state.evaluated_step}"
        raise non_finite(what, profile, parts.hardware)
    return state.step, state.last_loss if state.evaluated_step == state.step else None


def _model_card(
    run: Run,
    profile: Profile,
    parts: ModelParts,
    state: TrainState,
    data: TrainingData,
    step: int,
    loss: float | None,
) -> str:
    """README.md of final/: what was trained how, with YAML in front for the hub."""
    base = profile.model.name_or_path or "from scratch"
    rows = [
        ("base model", f"`{Path(base).name if base.startswith('/') else base}`"),
        ("stage, method", f"{profile.run.stage}, {profile.adapter.method}"),
        *([("score", _describe_score(parts, data))] if profile.gives_scores else []),
        *([("base stored in", _describe_bits(profile.adapter))] if profile.adapter.is_quantised else []),
        ("weights", describe_weights(step, state, data.plan)),
        ("evaluation loss", f"{_describe_loss(state.loss_before)} at step 0, {_describe_loss(loss)} here"),
        ("learning rate", f"{profile.train.learning_rate:g}, {profile.train.lr_scheduler_type}"),
        ("effective batch", f"{data.plan.effective_batch}"),
        ("precision", parts.hardware.precision),
        ("seed", f"{profile.train.seed}"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    header = f"base_model: {base}\nlibrary_name: {'peft' if is_adapted(parts.model) else 'transformers'}"
    return f"---\n{header}\n---\n\n# {run.name}\n\nTrained with ftui.\n\n| | |\n|---|---|\n{table}\n"


def describe_weights(step: int, state: TrainState, plan: RunPlan) -> str:
    """Where in the run the weights of `step` stood: the best ones are older than the last."""
    return f"step {step} of {state.step} (epoch {epoch_at(plan, state, step):.2f})"


def _describe_score(parts: ModelParts, data: TrainingData) -> str:
    """What whoever loads a reward model has to know. (An adapter has no config that could say it.)"""
    padding, number = data.tokenizer.pad_token, data.tokenizer.pad_token_id
    load = "AutoPeftModelForSequenceClassification" if is_adapted(parts.model) else "AutoModelForSequenceClassification"
    config = f", config.pad_token_id = {number}" if is_adapted(parts.model) else ""
    return f"at the last token of prompt and answer; {load}, num_labels = 1, padded with `{padding}`{config}"


def _describe_bits(adapter: AdapterSection) -> str:
    double = ", scales quantised too" if adapter.bnb_4bit_use_double_quant else ""
    return "8 bits (LLM.int8)" if adapter.load_in_8bit else f"4 bits ({adapter.bnb_4bit_quant_type}{double})"


def _describe_loss(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"
