"""`[[curriculum]]`: the stages of a run, each on a part of the rows."""

from collections.abc import Sequence
from typing import Literal

from ftui.profile.sections.fields import Section, weights

SortKey = Literal["length", "target_share", "loss"]
Order = Literal["ascending", "descending"]


class CurriculumStage(Section):
    """`[[curriculum]]`: stages that follow each other, each on the first part of the rows by some order."""

    sort_by: SortKey = weights("length")
    """What the rows are sorted by: their tokens, the share of their tokens that is trained, or the loss that the base
    model has on them (measured once, when the run begins)."""

    order: Order = weights("ascending")
    """Which rows come first: `ascending` those with the least of it, `descending` those with the most."""

    fraction: float = weights(1.0, gt=0, le=1)
    """Share of the rows so sorted that the stage trains on, from the first one on; 1 = all of them."""

    num_train_epochs: float = weights(1.0, gt=0, le=10**9)
    """Passes of the stage over its rows. All stages together make the run's steps; train.max_steps may end it sooner,
    and cannot make it longer."""

    learning_rate: float | None = weights(None, ge=0)
    """Highest learning rate of the stage, in place of train.learning_rate. The curve (train.lr_scheduler_type with its
    warm-up) goes over the whole run and does not begin anew with a stage: only its height changes, so that the rate
    never rises back to a peak in the middle of a run that nobody asked for."""

    train_sampling_strategy: Literal["random", "group_by_length", "sequential"] | None = weights(None)
    """Order of the stage's rows in a pass, in place of train.train_sampling_strategy. `sequential` keeps them as they
    are sorted (packed rows by the mean of their sequences); the others shuffle them."""

    def is_sorted(self, strategy: str) -> bool:
        """Whether sorting changes anything of it; `strategy` is train.train_sampling_strategy."""
        return self.fraction < 1 or (self.train_sampling_strategy or strategy) == "sequential"


def needs_losses(stages: Sequence[CurriculumStage], strategy: str) -> bool:
    """Whether any stage has other rows, or another order, for the base model's loss on them."""
    return any(one.sort_by == "loss" and one.is_sorted(strategy) for one in stages)
