"""A rank that follows: its part of every step, nothing else. Rank 0 reads, decides and writes (engine/recipe.py)."""

from ftui.runs.checkpoint_folders import Checkpoint

from ..checkpoints.checkpoint import restore
from ..optim.optimizer import allocate_state
from ..system.rng import RngState
from ..training.context import Training
from ..training.forward_backward import Passes
from ..training.prefetch import Feed
from ..training.step import apply
from .process_group import Do, Order
from .rank_state import account


def follow(training: Training) -> int:
    """Do what rank 0 orders until it says that this is the end; returns the exit code.

    Raises:
        RankLostError: rank 0, or another, is gone.
    """
    device, last = training.hardware.device, -1
    boundary = RngState.capture(device)
    with Feed(training.prepared, training.ranks) as feed:
        passes = Passes(training, feed)
        while (order := training.ranks.next_order()).do != Do.END:
            match order:
                case Order(do=Do.RESTORE):
                    _restore(training, order.number)
                case Order(do=Do.STEP):
                    if order.number != last:  # else memory ran out, and the step is taken again
                        boundary, last = RngState.capture(device), order.number
                    passes.run(order.number, order.size, order.factor, boundary)
                case Order(do=Do.APPLY):
                    apply(training, order.factor)
                    training.optimizer.zero_grad(set_to_none=True)
                case Order(do=Do.DROP):
                    training.optimizer.zero_grad(set_to_none=True)
                case Order(do=Do.TELL):
                    training.ranks.gather(account(training))
    return 0


def _restore(training: Training, step: int) -> None:
    if step == 0:
        allocate_state(training.optimizer)
    else:
        restore(training, Checkpoint(training.run.checkpoints / f"checkpoint-{step}", step))
