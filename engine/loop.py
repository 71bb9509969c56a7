"""The loop: steps, and between two steps whatever is due (evaluation, checkpoint, the end)."""

import time

from ftui.engine.checkpoint import Keeper
from ftui.engine.control import Ready
from ftui.engine.evaluate import evaluate
from ftui.engine.feed import Feed
from ftui.engine.rng import RngState
from ftui.engine.settings import value_at
from ftui.engine.training import Training
from ftui.engine.update import Update


class Loop:
    """Runs a training from its state's step to the end. `boundary`: the random state after the last finished step."""

    def __init__(self, training: Training, keeper: Keeper) -> None:
        self.training = training
        self.keeper = keeper
        self.boundary = RngState.capture(training.hardware.device)

    def run(self) -> str:
        """Train to the end; returns why it ended, in words.

        Raises:
            Leave: `boundary` and the state are those of the last finished step.
            FtuiError: see engine/update.py.
        """
        training, state = self.training, self.training.state
        with Feed(training.prepared) as feed:
            update = Update(training, feed)
            training.logbook.phase("training")
            while True:
                if reason := self._between_steps():
                    return reason
                if state.step >= self._last():
                    return f"all {state.step} steps are done"
                update.take(self.boundary)
                self.boundary = RngState.capture(training.hardware.device)

    def _last(self) -> int:
        """The step to end at; a letter may have moved it."""
        moved = value_at(self.training.state.settings, "max_steps", self.training.state.step + 1)
        return self.training.prepared.plan.max_steps if moved is None else int(moved)

    def _between_steps(self) -> str | None:
        """Evaluate and save where due; the reason to end, if any. A resumed run may do it again for its step."""
        training, state = self.training, self.training.state
        training.control.poll(Ready.ALL)
        tags = [tag for tag, due in (("periodic", self._save_is_due()), ("last", self._is_last())) if due]
        if self._evaluation_is_due() and evaluate(training).best:
            tags.append("best")
        if tags:
            self.keeper.save(self.boundary, *tags)
        self.keeper.settle(wait=False)
        patience = training.profile.eval.early_stopping_patience
        if patience is not None and state.bad_evaluations >= patience:
            return f"no better evaluation in {state.bad_evaluations} in a row (early stopping)"
        return None

    def _is_last(self) -> bool:
        return self.training.state.step == self._last()

    def _steps_between(self, name: str, default: int | None) -> int | None:
        """A period of the profile, or what a letter has made of it."""
        moved = value_at(self.training.state.settings, name, self.training.state.step)
        return default if moved is None else int(moved)

    def _save_is_due(self) -> bool:
        section, step = self.training.profile.checkpoint, self.training.state.step
        minutes = (time.monotonic() - self.keeper.last_save_time) / 60
        period = self._steps_between("save_steps", section.save_steps)
        return step > 0 and (
            (period is not None and step % period == 0)
            or (section.save_minutes is not None and minutes >= section.save_minutes)
        )

    def _evaluation_is_due(self) -> bool:
        training, step = self.training, self.training.state.step
        section = training.profile.eval
        if training.prepared.evaluation is None or training.state.evaluated_step >= step:
            return False
        if step == 0:
            return section.eval_on_start
        steps = self._steps_between("eval_steps", section.eval_steps)
        every = {"no": 0, "steps": steps or 0, "epoch": training.prepared.plan.steps_per_epoch}
        period = every[section.eval_strategy]
        return self._is_last() or (period > 0 and step % period == 0)
