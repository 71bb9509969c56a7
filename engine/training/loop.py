"""The loop: steps, and between two steps whatever is due (evaluation, checkpoint, the end)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch

from ftui.profile.schema import Profile
from ftui.runs.events import StageBegan

from ..checkpoints.checkpoint import CheckpointManager
from ..planning.curriculum_plan import CurriculumPlan, RunPlan, describe_stage
from ..runtime.control_flags import Control, RequestLevel, Shutdown
from ..runtime.event_writer import EventWriter
from ..system.rng import RngState
from ..system.train_state import TrainState
from .evaluate import Evaluator
from .step import StepRunner
from .triggers import best_is_saved, evaluation_is_due, last_step, rung_is_reached, save_is_due


@dataclass(eq=False)
class Loop:
    """Runs a training from its state's step to the end."""

    profile: Profile
    plan: RunPlan
    state: TrainState
    control: Control
    events: EventWriter
    evaluator: Evaluator | None
    checkpoints: CheckpointManager
    before_step: Callable[[int], None] = lambda step: None
    """Called with the number of each step before it is taken; what it raises leaves the run as a step would."""
    _stage: int = -1

    def run(self, steps: StepRunner, device: torch.device) -> str:
        """Train to the end; returns why it ended, in words.

        Raises:
            Shutdown: the state and `checkpoints.boundary` are those of the last finished step.
            FtuiError: see engine/training/step.py.
        """
        self.events.set_phase("training")
        while True:
            if reason := self._between_steps():
                return reason
            if self.state.step >= last_step(self.plan, self.state):
                return f"all {self.state.step} steps are done"
            if rung_is_reached(self.profile.checkpoint, self.state):
                self._leave_at_rung()
            self._record_stage()
            self.before_step(self.state.step + 1)
            steps.run(self.checkpoints.boundary)
            self.checkpoints.boundary = RngState.capture(device)

    def _leave_at_rung(self) -> NoReturn:
        """Evaluate, unless that was due anyway: as an extra one, so that best and patience stay those of the whole run.

        Raises:
            Shutdown: always; a parked run is saved as it ends.
        """
        if self.evaluator is not None and self.state.evaluated_step < self.state.step:
            self.evaluator.evaluate(requested=True)
        raise Shutdown("park")

    def _record_stage(self) -> None:
        """Say which stage of a curriculum the next step belongs to, at its first step and where an attempt begins."""
        plan, step = self.plan, self.state.step + 1
        if isinstance(plan, CurriculumPlan) and plan.stage_at(step) != self._stage:
            self._stage = plan.stage_at(step)
            words = describe_stage(plan.sections[self._stage], self.profile.train.train_sampling_strategy)
            first, number = plan.first_steps[self._stage], self._stage + 1
            self.events.write(StageBegan(step=first, number=number, of=len(plan.stages), words=words))

    def _between_steps(self) -> str | None:
        """Evaluate and save where due; the reason to end, if any. A resumed run may do it again for its step."""
        profile, plan, state = self.profile, self.plan, self.state
        self.control.poll(RequestLevel.ALL)
        self.checkpoints.collect()
        minutes = (time.monotonic() - self.checkpoints.last_save_time) / 60
        tags = ["periodic"] if save_is_due(profile.checkpoint, plan, state, minutes) else []
        if state.step == last_step(plan, state):
            tags.append("last")
        evaluator = self.evaluator if evaluation_is_due(profile.eval, plan, state) else None
        if evaluator is not None:
            self.checkpoints.finish()  # which lets old ones go: afterwards the best one is not on the disk for a while
            if evaluator.evaluate().best and best_is_saved(profile):
                tags.append("best")
        if "last" in tags:
            self.checkpoints.save(*tags)
        elif tags:
            self.checkpoints.start_save(*tags)
        patience = profile.eval.early_stopping_patience
        if patience is not None and state.bad_evaluations >= patience:
            return f"no better evaluation in {state.bad_evaluations} in a row (early stopping)"
        return None
