"""What is due between two steps, an evaluation or a checkpoint: pure functions of profile, plan and state."""

import math

from ftui.profile.schema import Profile
from ftui.profile.sections.evaluation import CheckpointSection, EvalSection

from ..planning.curriculum_plan import RunPlan
from ..system.train_state import TrainState


def in_steps(period: int | float, max_steps: int) -> int:
    """A period in steps: a share of all steps below 1 (rounded up), else a number of steps."""
    return int(period) if period >= 1 else math.ceil(max_steps * period)


def evaluation_is_due(section: EvalSection, plan: RunPlan, state: TrainState) -> bool:
    """At the end and by the strategy; never twice at a step, and not before `eval_delay`.

    An eval_steps that a request has set counts whatever the strategy is.
    """
    step = state.step
    if state.evaluated_step >= step:
        return False
    if step == 0:
        return section.eval_on_start
    if step == last_step(plan, state):
        return True
    override = state.value_at("eval_steps", step)
    by_epochs = section.eval_strategy == "epoch" and override is None
    if section.eval_delay > (epoch_at(plan, state, step) if by_epochs else step):
        return False
    if by_epochs:
        return plan.ends_epoch(step)
    if section.eval_strategy == "no" and override is None:
        return False
    return step % in_steps(section.eval_steps if override is None else override, plan.max_steps) == 0


def save_is_due(section: CheckpointSection, plan: RunPlan, state: TrainState, minutes: float) -> bool:
    """Whether a save is due: by the strategy, a requested save_steps, or since the last one is `minutes` ago."""
    if state.step == 0:
        return False
    if section.save_minutes is not None and section.save_strategy != "no" and minutes >= section.save_minutes:
        return True
    override = state.value_at("save_steps", state.step)
    if override is not None:
        return state.step % int(override) == 0
    if section.save_strategy == "epoch":
        return plan.ends_epoch(state.step)
    if section.save_strategy != "steps" or section.save_steps is None:
        return False
    return state.step % in_steps(section.save_steps, plan.max_steps) == 0


def best_is_saved(profile: Profile) -> bool:
    """Whether a better evaluation than all before is a reason to save."""
    return profile.checkpoint.save_strategy == "best" or profile.eval.load_best_model_at_end


def rung_is_reached(section: CheckpointSection, state: TrainState) -> bool:
    """Whether the run is to be parked now; a resumed one may be beyond its rung."""
    return section.park_at_step is not None and state.step >= section.park_at_step


def epoch_at(plan: RunPlan, state: TrainState, step: int) -> float:
    """Passes over the rows finished after `step` steps, those of a fork's parent among them.

    Where a run draws as many prompts as it needs, `step` is the newest step, and they are counted.
    """
    drawn = state.prompts_drawn
    return (plan.epoch_of(step) if drawn is None else drawn / plan.rows_per_epoch) + state.epoch_shift


def last_step(plan: RunPlan, state: TrainState) -> int:
    """The step to end at; a request may have moved it."""
    override = state.value_at("max_steps", state.step + 1)
    return plan.max_steps if override is None else int(override)
