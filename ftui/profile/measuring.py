"""`[eval]` and `[checkpoint]`: when the model is measured and when it is saved."""

from typing import Literal

from ftui.profile.fields import Section, conduct, weights


class EvalSection(Section):
    """`[eval]`: how often and how the model is measured."""

    eval_strategy: Literal["no", "steps", "epoch"] = weights("epoch")
    """When to evaluate (where there are rows for it); the end of the run always is."""

    eval_steps: int = weights(100, ge=1)
    """Steps between evaluations with eval_strategy = "steps"."""

    eval_on_start: bool = conduct(True)
    """Evaluate before the first step, so that there is something to compare with."""

    per_device_eval_batch_size: int = conduct(8, ge=1)
    """Sequences that go through the model at once while evaluating."""

    early_stopping_patience: int | None = weights(None, ge=1)
    """End the run after this many evaluations in a row without a better loss."""

    early_stopping_threshold: float = weights(0.0, ge=0)
    """How much lower the loss must be to count as better for early stopping."""

    load_best_model_at_end: bool = weights(True)
    """Put the checkpoint with the lowest evaluation loss in final/, not the last one."""

    sample_prompts: tuple[str, ...] = conduct(())
    """Questions answered (greedily) before the first step and by the final model."""

    sample_max_new_tokens: int = conduct(64, ge=1)
    """Longest sample answer in tokens."""


class CheckpointSection(Section):
    """`[checkpoint]`: when the run is saved and how many checkpoints are kept."""

    save_steps: int | None = conduct(200, ge=1)
    """Steps between checkpoints. "none" = by time only."""

    save_minutes: float | None = conduct(10.0, gt=0)
    """Longest time between checkpoints: what a kill can cost. "none" = by steps only."""

    save_total_limit: int = conduct(3, ge=2)
    """Checkpoints kept (the best one comes on top)."""

    grace_seconds: float = conduct(10.0, ge=0)
    """Time a pre-empted pod leaves between SIGTERM and the end; a save that takes longer is not begun."""

    max_hold_minutes: float = conduct(15.0, ge=0)
    """How long a run waits for room on a full disk before it parks."""
