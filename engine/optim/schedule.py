"""The learning-rate schedule: the curve of transformers, evaluated one step at a time."""

import math
from collections.abc import Callable

import torch
from transformers import get_scheduler

from ftui.errors import ProfileError
from ftui.profile.sections.schedulers import PLATEAU, explicit_values
from ftui.profile.sections.train import TrainSection


def warmup_steps(train: TrainSection, max_steps: int) -> int:
    """Steps of warm-up: a share of all steps below 1 (rounded up), else a number of steps."""
    return int(train.warmup_steps) if train.warmup_steps >= 1 else math.ceil(max_steps * train.warmup_steps)


def learning_rate_curve(
    train: TrainSection, max_steps: int, peak: Callable[[int, float], float] | None = None
) -> Callable[[int], float]:
    """The learning rate of step n (1-based), a pure function: nothing to save, nothing to restore.

    `peak(step, train.learning_rate)` is the curve's height at a step, where it is not the same at all of them.
    Past `max_steps` (a run that was made longer) the rate stays where the curve ended. The curve itself is
    transformers'; its scheduler object is made over a weightless optimizer and never stepped.

    Raises:
        ProfileError: its parts are longer than the run.
    """
    name, details = train.lr_scheduler_type, explicit_values(train.lr_scheduler_kwargs)
    warmup = warmup_steps(train, max_steps)
    if name in ("constant", PLATEAU):  # a plateau's falls are engine/optim/plateau.py's
        name, details = "constant_with_warmup", {}
    if name == "warmup_stable_decay":
        _check_parts(warmup, details, max_steps)
    weightless = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=train.learning_rate)
    scheduler = get_scheduler(
        name, weightless, num_warmup_steps=warmup, scheduler_specific_kwargs=details,
        # With both, transformers warns that it takes the level part's length from the profile.
        num_training_steps=None if "num_stable_steps" in details else max_steps,
    )  # fmt: skip
    factor = scheduler.lr_lambdas[0]

    def rate(step: int) -> float:
        height = train.learning_rate if peak is None else peak(step, train.learning_rate)
        return height * float(factor(min(step, max_steps) - 1))

    return rate


def _check_parts(warmup: int, details: dict[str, float | int | str | bool], max_steps: int) -> None:
    """A level part of fewer than no steps would make the rate jump down at the end of the warm-up."""
    stable, decay = int(details.get("num_stable_steps", 0)), int(details["num_decay_steps"])
    if warmup + stable + decay > max_steps:
        level = f" + {stable} level" if stable else ""
        raise ProfileError(
            f"The learning rate's curve has {warmup} steps of warm-up{level} + {decay} of decay, the run {max_steps}.",
            hint="Lower train.lr_scheduler_kwargs.num_decay_steps or train.warmup_steps.",
        )
