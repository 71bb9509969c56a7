"""The loop: steps, and between two steps whatever is due (evaluation, checkpoint, the end)."""

import time

from ftui.runs.events import StageBegan

from ..checkpoints.checkpoint import Keeper
from ..planning.curriculum_plan import Course, in_words
from ..runtime.control_flags import Ready
from ..system.rng import RngState
from .context import Training
from .evaluate import evaluate
from .prefetch import Feed
from .step import Update
from .triggers import best_is_saved, evaluation_is_due, last_step, save_is_due


class Loop:
    """Runs a training from its state's step to the end. `boundary`: the random state after the last finished step."""

    def __init__(self, training: Training, keeper: Keeper) -> None:
        self.training = training
        self.keeper = keeper
        self.boundary = RngState.capture(training.hardware.device)
        self._stage = -1

    def run(self) -> str:
        """Train to the end; returns why it ended, in words.

        Raises:
            Leave: `boundary` and the state are those of the last finished step.
            FtuiError: see engine/training/step.py.
        """
        training, state = self.training, self.training.state
        with Feed(training.prepared, training.ranks) as feed:
            update = Update(training, feed)
            training.logbook.phase("training")
            while True:
                if reason := self._between_steps():
                    return reason
                if state.step >= last_step(training):
                    return f"all {state.step} steps are done"
                self._begin_stage()
                update.take(self.boundary)
                self.boundary = RngState.capture(training.hardware.device)

    def _begin_stage(self) -> None:
        """Say which stage of a curriculum the next step belongs to, at its first step and where an attempt begins."""
        plan = self.training.prepared.plan
        if isinstance(plan, Course) and plan.stage_at(self.training.state.step + 1) != self._stage:
            self._stage = plan.stage_at(self.training.state.step + 1)
            section, strategy = plan.sections[self._stage], self.training.profile.train.train_sampling_strategy
            words, number = in_words(section, strategy), self._stage + 1
            self.training.logbook.event(
                StageBegan(step=plan.first_step(self._stage), number=number, of=len(plan.stages), words=words)
            )

    def _between_steps(self) -> str | None:
        """Evaluate and save where due; the reason to end, if any. A resumed run may do it again for its step."""
        training, state = self.training, self.training.state
        training.control.poll(Ready.ALL)
        minutes = (time.monotonic() - self.keeper.last_save_time) / 60
        is_last = state.step == last_step(training)
        tags = [tag for tag, due in (("periodic", save_is_due(training, minutes)), ("last", is_last)) if due]
        if evaluation_is_due(training) and evaluate(training).best and best_is_saved(training):
            tags.append("best")
        if tags:
            self.keeper.save(self.boundary, *tags)
        self.keeper.settle(wait=False)
        patience = training.profile.eval.early_stopping_patience
        if patience is not None and state.bad_evaluations >= patience:
            return f"no better evaluation in {state.bad_evaluations} in a row (early stopping)"
        return None
