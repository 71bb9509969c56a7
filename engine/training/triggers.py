"""What is due between two steps, an evaluation or a checkpoint: pure functions of profile, plan and letters."""

import math

from ..runtime.live_overrides import value_at
from .context import Training


def in_steps(period: int | float, max_steps: int) -> int:
    """A period in steps: a share of all steps below 1 (rounded up), else a number of steps."""
    return int(period) if period >= 1 else math.ceil(max_steps * period)


def evaluation_is_due(training: Training) -> bool:
    """At the end and by the strategy; never twice at a step, and not before `eval_delay`.

    A letter's eval_steps counts whatever the strategy is.
    """
    section, state, plan = training.profile.eval, training.state, training.prepared.plan
    step = state.step
    if training.prepared.evaluation is None or state.evaluated_step >= step:
        return False
    if step == 0:
        return section.eval_on_start
    if step == last_step(training):
        return True
    moved = value_at(state.settings, "eval_steps", step)
    by_epochs = section.eval_strategy == "epoch" and moved is None
    if section.eval_delay > (plan.epoch_of(step) if by_epochs else step):
        return False
    if by_epochs:
        return plan.ends_epoch(step)
    if section.eval_strategy == "no" and moved is None:
        return False
    return step % in_steps(section.eval_steps if moved is None else moved, plan.max_steps) == 0


def save_is_due(training: Training, minutes: float) -> bool:
    """By the strategy, a letter's save_steps, or because the last save is `minutes` ago."""
    section, step, plan = training.profile.checkpoint, training.state.step, training.prepared.plan
    if step == 0:
        return False
    if section.save_minutes is not None and section.save_strategy != "no" and minutes >= section.save_minutes:
        return True
    moved = value_at(training.state.settings, "save_steps", step)
    if moved is not None:
        return step % int(moved) == 0
    if section.save_strategy == "epoch":
        return plan.ends_epoch(step)
    if section.save_strategy != "steps" or section.save_steps is None:
        return False
    return step % in_steps(section.save_steps, plan.max_steps) == 0


def best_is_saved(training: Training) -> bool:
    """Whether a better evaluation than all before is a reason to save."""
    return training.profile.checkpoint.save_strategy == "best" or training.profile.eval.load_best_model_at_end


def last_step(training: Training) -> int:
    """The step to end at; a letter may have moved it."""
    moved = value_at(training.state.settings, "max_steps", training.state.step + 1)
    return training.prepared.plan.max_steps if moved is None else int(moved)
