"""`[[curriculum]]`: the stages of a run, each on a part of the rows."""

from collections.abc import Sequence
from typing import Literal

from ftui.profile.sections.fields import Section, weights

SortKey = Literal["length", "target_share", "loss"]
Order = Literal["ascending", "descending"]


class CurriculumStage(Section):
    """`[[curriculum]]`: stages that follow each other, each on the first part of the sorted rows."""

    sort_by: SortKey = weights("length")
    """What to sort the rows by: their number of tokens, the share of their tokens that is trained on, or the base
    model's loss on them (measured once, when the run starts)."""

    order: Order = weights("ascending")
    """`ascending` puts the rows with the lowest value first, `descending` those with the highest."""

    fraction: float = weights(1.0, gt=0, le=1)
    """Share of the sorted rows that the stage trains on, counted from the first row; 1 = all of them."""

    num_train_epochs: float = weights(1.0, gt=0, le=10**9)
    """Passes of the stage over its rows. All stages together give the number of steps; train.max_steps can end the run
    sooner, but not make it longer."""

    learning_rate: float | None = weights(None, ge=0)
    """Peak learning rate of the stage, in place of train.learning_rate. The schedule (train.lr_scheduler_type and its
    warm-up) spans the whole run and does not restart with a stage: only its height changes, so that the rate does not
    climb back to a peak in the middle of the run."""

    train_sampling_strategy: Literal["random", "group_by_length", "sequential"] | None = weights(None)
    """Order of the stage's rows in a pass, in place of train.train_sampling_strategy. `sequential` keeps the sorted
    order (of packed rows, by the mean of their sequences); the others shuffle."""

    def is_sorted(self, strategy: str) -> bool:
        """Whether sorting changes the stage's rows or their order; `strategy` is train.train_sampling_strategy."""
        return self.fraction < 1 or (self.train_sampling_strategy or strategy) == "sequential"


def needs_losses(stages: Sequence[CurriculumStage], strategy: str) -> bool:
    """Whether the rows of any stage, or their order, depend on the base model's loss."""
    return any(one.sort_by == "loss" and one.is_sorted(strategy) for one in stages)
