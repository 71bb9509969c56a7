"""`reduce_lr_on_plateau`: the learning rate falls when evaluations get no better. torch's own scheduler decides.

All that it remembers is in `TrainState.plateau`, so the rate of a step follows from the state, and a resumed run
continues as if it had never been interrupted.
"""

import math

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ftui.profile.sections.schedulers import PLATEAU, explicit_values
from ftui.profile.sections.train import TrainSection

from ..system.train_state import TrainState

REMEMBERED = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


def note_loss(state: TrainState, train: TrainSection, loss: float | None) -> None:
    """Give the scheduler the loss of an evaluation, as transformers' Trainer does after each.

    Not that of step 0, which is before the training, and not one that did not fit into memory (`None`).
    """
    if train.lr_scheduler_type != PLATEAU or state.step == 0 or loss is None:
        return
    rate = state.plateau.get("rate", train.learning_rate)
    weightless = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    scheduler = ReduceLROnPlateau(weightless, **explicit_values(train.lr_scheduler_kwargs))  # type: ignore[arg-type]
    for name in REMEMBERED:
        setattr(scheduler, name, state.plateau.get(name, getattr(scheduler, name)))
    scheduler.step(loss)
    memory = {"rate": scheduler.get_last_lr()[0], **{name: getattr(scheduler, name) for name in REMEMBERED}}
    # The best is infinite until a loss was finite; it is the scheduler's own beginning, and JSON has no word for it.
    state.plateau = {name: float(value) for name, value in memory.items() if math.isfinite(value)}


def remaining_share(state: TrainState, train: TrainSection) -> float:
    """The factor (0..1) that plateaus have left of the curve's learning rate; 1 with every other scheduler."""
    rate = state.plateau.get("rate")
    return 1.0 if rate is None or not train.learning_rate else rate / train.learning_rate
