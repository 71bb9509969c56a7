"""`[eval]` and `[checkpoint]`: when the model is evaluated, and when it is saved."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import field_validator

from ftui.measures import MEASURES
from ftui.profile.sections.fields import Section, conduct, weights


class EvalSection(Section):
    """`[eval]`: when and how the model is evaluated."""

    eval_strategy: Literal["no", "steps", "epoch"] = weights("epoch")
    """When to evaluate, if there are rows for it. The end of the run is always evaluated."""

    eval_steps: int | float = weights(100, gt=0)
    """Steps between evaluations with eval_strategy = "steps": a number, or a share of all steps if below 1."""

    eval_delay: float = weights(0.0, ge=0)
    """Evaluate only after this many steps (with eval_strategy = "epoch": epochs)."""

    eval_on_start: bool = conduct(True)
    """Evaluate before the first step, as a baseline."""

    per_device_eval_batch_size: int = conduct(8, ge=1)
    """Sequences that pass through the model at once during evaluation."""

    metric_for_best_model: Literal[
        "loss", "mean_token_accuracy", "perplexity", "rewards/accuracies", "rewards/margins", "rewards/chosen",
        "logps/chosen", "nll_loss", "log_odds_ratio", "exact_match", "token_f1", "rouge_l", "chrf", "bleu",
        "json_valid", "stopped", "reward",
    ] = weights("loss")  # fmt: skip
    """The measure on the evaluation rows by which the best model is chosen, and early stopping and
    `reduce_lr_on_plateau` decide; also with `eval_` before it. `grpo` and `ppo` have `reward`, and `loss` is that
    there. Of `sft` and `pretrain`: the share of target tokens that
    the model holds for the likeliest, or e to the power of the loss. Of stages on pairs: the share of pairs whose
    chosen answer has the greater reward; of these and `kto`: the mean difference of both rewards, the reward or the
    log-probability of the chosen answers. `nll_loss` (`orpo`, `cpo`) is the cross-entropy of the chosen answers,
    `log_odds_ratio` the other term of `orpo`. The others are of answers, and need `generate`: docs/after.md."""

    greater_is_better: bool | None = weights(None)
    """Follows from the metric: false for `loss` (true in `grpo` and `ppo`), `nll_loss` and `perplexity`, true for the
    others. Any other value is refused."""

    early_stopping_patience: int | None = weights(None, ge=1)
    """End the run after this many evaluations in a row without a better value of metric_for_best_model."""

    early_stopping_threshold: float = weights(0.0, ge=0)
    """How much better the value must be to count as better for early stopping."""

    load_best_model_at_end: bool = weights(True)
    """Put the checkpoint with the best evaluation in final/ instead of the last one (if it is evaluated)."""

    generate: bool = weights(False)
    """Answer evaluation rows at each evaluation (greedily) and compare with their own answers: exact match, F1,
    ROUGE-L, chrF, BLEU, JSON, stop rate, length. Stage `sft` only. The answers are in evaluations/ of the run."""

    generate_samples: int | None = weights(64, ge=1)
    """How many evaluation rows are answered, evenly spaced over all of them. "none" = all."""

    generate_max_new_tokens: int | None = weights(None, ge=1)
    """Longest answer with `generate`, in tokens. "none" = as long as the longest of the rows' own answers."""

    sample_prompts: tuple[str, ...] = conduct(())
    """Prompts to answer (greedily) before the first step and with the final model."""

    sample_max_new_tokens: int = conduct(64, ge=1)
    """Longest sample answer in tokens."""

    @property
    def greater_counts(self) -> bool:
        """Whether more of the metric is better."""
        return bool(MEASURES[self.metric_for_best_model].greater_is_better)

    def value_of(self, loss: float | None, extras: Mapping[str, float | None]) -> float | None:
        """The metric of an evaluation, from its loss and its other measures; `None` where it could not be measured."""
        return loss if self.metric_for_best_model == "loss" else extras.get(self.metric_for_best_model)

    @field_validator("metric_for_best_model", mode="before")
    @classmethod
    def _without_prefix(cls, name: Any) -> Any:
        return name.removeprefix("eval_") if isinstance(name, str) else name

    @field_validator("eval_steps")
    @classmethod
    def _whole_steps(cls, period: int | float) -> int | float:
        return _checked_period("eval_steps", period)


class CheckpointSection(Section):
    """`[checkpoint]`: when to save the run, and how many checkpoints to keep."""

    save_strategy: Literal["no", "steps", "epoch", "best"] = conduct("steps")
    """Save every save_steps, at the end of each epoch, or at each new best evaluation, and in each case every
    save_minutes; "no" saves at the end only. If final/ gets the best weights, the best evaluations are always saved."""

    save_steps: int | float | None = conduct(200, gt=0)
    """Steps between checkpoints: a number, or a share of all steps if below 1. "none" = by time only."""

    save_minutes: float | None = conduct(10.0, gt=0)
    """Longest time between checkpoints, which is what a kill can cost. "none" = by save_strategy only."""

    save_total_limit: int = conduct(3, ge=2)
    """Number of checkpoints to keep, in addition to the best one."""

    grace_seconds: float = conduct(10.0, ge=0)
    """Time between SIGTERM and the end of a preempted pod. A save that would take longer is not started."""

    max_hold_minutes: float = conduct(15.0, ge=0)
    """How long a run waits for space on a full disk before it parks."""

    park_at_step: int | None = conduct(None, ge=1)
    """Evaluate, save and park the run after this step; resumed with a greater one it goes on as if it had never been
    parked. `ftui sweep` sets it for its trials. "none" = train to the end."""

    @field_validator("save_steps")
    @classmethod
    def _whole_steps(cls, period: int | float | None) -> int | float | None:
        return None if period is None else _checked_period("save_steps", period)


def _checked_period(name: str, period: int | float) -> int | float:
    if period > 1 and period != int(period):
        raise ValueError(f"{name} is a whole number of steps, or a share of them below 1, not {period:g}")
    return period
