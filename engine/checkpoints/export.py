"""The result: RUN/final, made of the best weights or the last, with all that is needed to use them."""

from pathlib import Path
from typing import Any

from ftui.profile.sections.adapter import AdapterSection
from ftui.runs import checkpoint_folders

from ..models.weights import read_weights, write_weights
from ..training.context import Training
from ..training.generate import sample
from .checkpoint import publish_final


def finish(training: Training) -> tuple[int, float | None]:
    """Choose the weights, let them answer the sample prompts, write final/; returns their step and evaluation loss."""
    step, loss = _choose_weights(training)
    sample(training, training.profile.eval.sample_prompts)
    training.logbook.phase("saving", "final")

    def write(folder: Path) -> None:
        write_weights(training, folder)
        (folder / "README.md").write_text(_card(training, step, loss))

    publish_final(training, write)
    return step, loss


def _choose_weights(training: Training) -> tuple[int, float | None]:
    """Load the best checkpoint's weights where the profile says so; returns the step they are of, and their loss."""
    state = training.state
    best = state.best_step if training.profile.eval.load_best_model_at_end else None
    if best is None or best == state.step:
        return state.step, state.last_loss if state.evaluated_step == state.step else None
    folder = training.run.checkpoints / f"checkpoint-{best}"
    if problem := checkpoint_folders.fault(folder):
        training.logbook.warn(f"checkpoint-{best}, the best, is damaged ({problem}): final/ holds the last weights")
        return state.step, state.last_loss if state.evaluated_step == state.step else None
    read_weights(training, folder)
    return best, state.best_loss


def _card(training: Training, step: int, loss: float | None) -> str:
    profile, plan = training.profile, training.prepared.plan
    base = profile.model.name_or_path or "from scratch"
    rows = [
        ("base model", f"`{Path(base).name if base.startswith('/') else base}`"),
        ("stage, method", f"{profile.run.stage}, {profile.adapter.method}"),
        *([("base held in", _held(profile.adapter))] if profile.adapter.is_quantised else []),
        ("weights", f"step {step} of {training.state.step} ({plan.epoch_of(training.state.step):.2f} epochs)"),
        ("evaluation loss", f"{_figure(training.state.loss_before)} at step 0, {_figure(loss)} here"),
        ("learning rate", f"{profile.train.learning_rate:g}, {profile.train.lr_scheduler_type}"),
        ("effective batch", f"{plan.effective_batch}"),
        ("precision", training.hardware.precision),
        ("seed", f"{profile.train.seed}"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    front: dict[str, Any] = {"base_model": base, "library_name": "peft" if training.is_adapter else "transformers"}
    header = "\n".join(f"{key}: {value}" for key, value in front.items())
    return f"---\n{header}\n---\n\n# {training.run.name}\n\nTrained with ftui.\n\n| | |\n|---|---|\n{table}\n"


def _held(adapter: AdapterSection) -> str:
    double = ", scales quantised too" if adapter.bnb_4bit_use_double_quant else ""
    return "8 bits (LLM.int8)" if adapter.load_in_8bit else f"4 bits ({adapter.bnb_4bit_quant_type}{double})"


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"
