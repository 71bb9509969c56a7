"""`reduce_lr_on_plateau`: the learning rate falls when evaluations get no better. torch's own scheduler decides.

Better is what eval.metric_for_best_model says. transformers' Trainer watches that too, but leaves it to its user to say
mode = "max" where more is better.

All that it remembers is in `TrainState.plateau`, so the rate of a step follows from the state, and a resumed run
continues as if it had never been interrupted.
"""

import math
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ftui.profile.sections.schedulers import PLATEAU, explicit_values
from ftui.profile.sections.train import TrainSection

from ..system.train_state import TrainState

REMEMBERED = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


def note_metric(state: TrainState, train: TrainSection, value: float | None, *, greater_counts: bool = False) -> None:
    """Give the scheduler the metric of an evaluation, as transformers' Trainer does after each.

    Not that of step 0, which is before the training, and not one that could not be measured (`None`).
    """
    if train.lr_scheduler_type != PLATEAU or state.step == 0 or value is None:
        return
    rate = state.plateau.get("rate", train.learning_rate)
    weightless = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    options: dict[str, Any] = explicit_values(train.lr_scheduler_kwargs)
    scheduler = ReduceLROnPlateau(weightless, mode="max" if greater_counts else "min", **options)
    for name in REMEMBERED:
        setattr(scheduler, name, state.plateau.get(name, getattr(scheduler, name)))
    scheduler.step(value)
    memory = {"rate": scheduler.get_last_lr()[0], **{name: getattr(scheduler, name) for name in REMEMBERED}}
    # The best is infinite until a value was finite; it is the scheduler's own beginning, and JSON has no word for it.
    state.plateau = {name: float(value) for name, value in memory.items() if math.isfinite(value)}


def remaining_share(state: TrainState, train: TrainSection) -> float:
    """The factor (0..1) that plateaus have left of the curve's learning rate; 1 with every other scheduler."""
    rate = state.plateau.get("rate")
    return 1.0 if rate is None or not train.learning_rate else rate / train.learning_rate
