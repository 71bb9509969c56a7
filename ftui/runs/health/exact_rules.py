"""Rules that are never wrong about what they say, over the records of steps."""

import math
from collections.abc import Sequence

from ftui.runs.events import Step
from ftui.runs.health.health_rules import HealthFinding

TOKEN_STAGES = ("pretrain", "sft")
"""Stages whose loss is nats a token; that of others may well be 0."""
FEWEST_TARGETS = 200
NEW_WEIGHTS = 1.1
"""How far above ln(vocabulary) a model may begin that knows nothing yet, as a factor."""
KNOWS_MORE = 0.9
"""A model that is as far below ln(vocabulary) knows more than to guess."""


def zero_loss(step: Step) -> HealthFinding | None:
    """A loss of exactly 0: every label is masked, or nothing is left to learn."""
    if step.loss != 0.0:
        return None
    return HealthFinding(
        "zero_loss",
        f"the loss of step {step.step} is exactly 0 over {step.num_target_tokens} target tokens",
        "Look at the loss masks of the rows: `ftui preview` with this profile shows which tokens are trained on.",
    )


def mean_loss(steps: Sequence[Step]) -> tuple[float, int, int] | None:
    """The mean loss of the newest steps that have 200 target tokens together, the first of them, and how many tokens;
    `None` where there are not as many, or one of them has no loss.
    """
    targets, nats = 0, 0.0
    for step in reversed(steps):
        if step.loss is None or not math.isfinite(step.loss):
            return None
        targets += step.num_target_tokens
        nats += step.loss * step.num_target_tokens
        if targets >= FEWEST_TARGETS:
            return nats / targets, step.step, targets
    return None


def worse_than_guessing(steps: Sequence[Step], vocabulary: int, *, knew_more: bool) -> HealthFinding | None:
    """The mean loss of the newest steps is above that of guessing evenly. `knew_more`: it was well below that before;
    weights that are new guess at first, and not quite evenly.
    """
    measured, guessing = mean_loss(steps), math.log(vocabulary)
    if measured is None or measured[0] <= guessing * (1.0 if knew_more else NEW_WEIGHTS):
        return None
    mean, first, targets = measured
    last = steps[-1].step
    where = f"of step {last}" if first == last else f"of steps {first} to {last}"
    return HealthFinding(
        "worse_than_guessing",
        f"the loss {where} is {mean:.2f} over {targets} target tokens: above {guessing:.2f}, that of guessing among "
        f"{vocabulary} tokens",
        "Fork from a checkpoint before it rose, with a tenth of train.learning_rate; if it began so, see that the "
        "tokenizer is the model's own: `ftui preview`.",
    )


def non_finite(step: Step, *, parameters: Sequence[str] = (), weights: Sequence[str] = ()) -> HealthFinding | None:
    """A loss or a gradient that is NaN or infinite. `parameters`: those whose gradient is; `weights`: those that are
    so themselves, and then every later step is.
    """
    names = [
        name for name, value in (("loss", step.loss), ("gradient", step.grad_norm))
        if value is not None and not math.isfinite(value)
    ]  # fmt: skip
    if not names and not weights:
        return None
    if weights:
        what = f"{len(weights)} trained weights are NaN or infinite ({listed(weights)}) in step {step.step}"
        return HealthFinding(
            "non_finite", what,
            "Abort, and resume from a checkpoint before it (`ftui checkpoints {run}`) with a lower learning rate.",
        )  # fmt: skip
    where = f", that of {listed(parameters)} first of all" if parameters else ""
    return HealthFinding(
        "non_finite",
        f"the {' and the '.join(names)} of step {step.step} {'is' if len(names) == 1 else 'are'} NaN or infinite"
        f"{where}; the step was not applied",
        'Set train.precision = "bf16" where it is "fp16"; else lower train.learning_rate.',
    )


def dead_adapter(
    without_effect: Sequence[str], without_gradient: Sequence[str], *, of: int, after: int
) -> HealthFinding:
    """Targets whose second matrix is still all zeros, or to which no gradient came, `after` so many steps."""
    parts = []
    if without_effect:
        parts.append(f"matrix B of {len(without_effect)} of {of} targets is still 0 ({listed(without_effect)})")
    if without_gradient:
        parts.append(f"no gradient reaches {len(without_gradient)} trained weights ({listed(without_gradient)})")
    return HealthFinding(
        "dead_adapter",
        f"after {after} steps {' and '.join(parts)}",
        "Leave these out of adapter.target_modules, or see why the model does not use them: they learn nothing.",
    )


def listed(names: Sequence[str], most: int = 2) -> str:
    """The first few names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
