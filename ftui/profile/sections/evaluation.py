"""`[eval]` and `[checkpoint]`: when the model is measured and when it is saved."""

from typing import Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, weights


class EvalSection(Section):
    """`[eval]`: how often and how the model is measured."""

    eval_strategy: Literal["no", "steps", "epoch"] = weights("epoch")
    """When to evaluate (where there are rows for it); the end of the run always is."""

    eval_steps: int | float = weights(100, gt=0)
    """Steps between evaluations with eval_strategy = "steps": a number, or below 1 a share of all steps."""

    eval_delay: float = weights(0.0, ge=0)
    """Evaluate only after this many steps (with eval_strategy = "epoch": epochs)."""

    eval_on_start: bool = conduct(True)
    """Evaluate before the first step, so that there is something to compare with."""

    per_device_eval_batch_size: int = conduct(8, ge=1)
    """Sequences that go through the model at once while evaluating."""

    metric_for_best_model: Literal["loss", "eval_loss"] = weights("loss")
    """What the best model has least of. The loss on the evaluation rows is the only measure so far."""

    greater_is_better: bool | None = weights(None)
    """Follows from the measure, false for a loss; another value is refused."""

    early_stopping_patience: int | None = weights(None, ge=1)
    """End the run after this many evaluations in a row without a better loss."""

    early_stopping_threshold: float = weights(0.0, ge=0)
    """How much lower the loss must be to count as better for early stopping."""

    load_best_model_at_end: bool = weights(True)
    """Put the checkpoint with the lowest evaluation loss (if there are evaluations) in final/, not the last one."""

    sample_prompts: tuple[str, ...] = conduct(())
    """Questions answered (greedily) before the first step and by the final model."""

    sample_max_new_tokens: int = conduct(64, ge=1)
    """Longest sample answer in tokens."""

    @field_validator("eval_steps")
    @classmethod
    def _whole_steps(cls, period: int | float) -> int | float:
        return _checked_period("eval_steps", period)


class CheckpointSection(Section):
    """`[checkpoint]`: when the run is saved and how many checkpoints are kept."""

    save_strategy: Literal["no", "steps", "epoch", "best"] = conduct("steps")
    """Save by save_steps, at the end of each epoch, or at each best evaluation only, and in each case by save_minutes;
    or "no": at the end only. Where final/ is to hold the best weights, the best evaluations are saved always."""

    save_steps: int | float | None = conduct(200, gt=0)
    """Steps between checkpoints: a number, or below 1 a share of all steps. "none" = by time only."""

    save_minutes: float | None = conduct(10.0, gt=0)
    """Longest time between checkpoints: what a kill can cost. "none" = by save_strategy only."""

    save_total_limit: int = conduct(3, ge=2)
    """Checkpoints kept (the best one comes on top)."""

    grace_seconds: float = conduct(10.0, ge=0)
    """Time a pre-empted pod leaves between SIGTERM and the end; a save that takes longer is not begun."""

    max_hold_minutes: float = conduct(15.0, ge=0)
    """How long a run waits for room on a full disk before it parks."""

    @field_validator("save_steps")
    @classmethod
    def _whole_steps(cls, period: int | float | None) -> int | float | None:
        return None if period is None else _checked_period("save_steps", period)


def _checked_period(name: str, period: int | float) -> int | float:
    if period > 1 and period != int(period):
        raise ValueError(f"{name} is a whole number of steps, or a share of them below 1, not {period:g}")
    return period
