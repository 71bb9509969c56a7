"""Letters that need a training run: what each of them does. Evaluations and samples leave the run as it was."""

from collections.abc import Callable

from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, listed
from ftui.runs.pins import read_pins, undeletable, write_pins
from ftui.runs.requests import AnyLetter, Delete, Evaluate, Pin, Sample, Save, Set, Unpin
from ftui.units import quantity

from ..checkpoints.checkpoint import Keeper
from ..runtime.control_flags import Desk
from ..runtime.live_overrides import Setting, changed
from ..system.rng import RngState
from .context import Training
from .evaluate import evaluate
from .generate import sample


class Requests:
    """Obeys letters and answers them. `boundary()` gives the random state after the last finished step."""

    def __init__(self, training: Training, keeper: Keeper, desk: Desk, boundary: Callable[[], RngState]) -> None:
        self._training = training
        self._keeper = keeper
        self._desk = desk
        self._boundary = boundary

    def obey(self, letter: AnyLetter) -> None:
        """Do what the letter says, or refuse it with the reason."""
        match letter:
            case Set():
                self._set(letter)
            case Save():
                self._save(letter)
            case Evaluate():
                self._evaluate(letter)
            case Sample():
                self._sample(letter)
            case Pin(step=step) | Unpin(step=step):
                self._pin(letter, step, isinstance(letter, Pin))
            case Delete(step=step):
                self._delete(letter, step)

    def _set(self, letter: Set) -> None:
        """The journal first: a change that was not written down could not be replayed."""
        state = self._training.state
        next_step = state.step + 1
        if not letter.settings:
            return self._desk.refused(letter, "it changes nothing")
        if letter.max_steps is not None and letter.max_steps < next_step:
            return self._desk.refused(letter, f"step {next_step} is under way: max_steps cannot be less")
        self._desk.applied(letter, f"from step {next_step} on")
        for name, value in letter.settings.items():
            state.settings = changed(state.settings, Setting(next_step, name, value))

    def _save(self, letter: Save) -> None:
        if self._training.state.step == 0:
            return self._desk.refused(letter, "no step is finished yet")
        path = self._keeper.save(self._boundary(), "manual")
        write_pins(self._training.run, read_pins(self._training.run) | {self._training.state.step})
        self._desk.applied(letter, path.name)

    def _evaluate(self, letter: Evaluate) -> None:
        training = self._training
        if training.prepared.evaluation is None:
            return self._desk.refused(letter, "the run has no rows to evaluate on")
        before = RngState.capture(training.hardware.device)
        done = evaluate(training, requested=True)
        before.restore(training.hardware.device)
        self._desk.applied(letter, f"loss {quantity(done.loss)}")

    def _sample(self, letter: Sample) -> None:
        training = self._training
        prompts = letter.prompts or training.profile.eval.sample_prompts
        if not prompts:
            return self._desk.refused(letter, "the letter has no prompt and the profile no eval.sample_prompts")
        before = RngState.capture(training.hardware.device)
        with training.logbook.within("evaluating", "samples"):
            answers = sample(training, prompts, requested=True)
        before.restore(training.hardware.device)
        self._desk.applied(letter, f"{len(answers)} answered")

    def _pin(self, letter: AnyLetter, step: int, wanted: bool) -> None:
        run = self._training.run
        if wanted and self._found(step) is None:
            return self._desk.refused(letter, f"there is no checkpoint-{step}")
        pins = read_pins(run)
        write_pins(run, pins | {step} if wanted else pins - {step})
        self._desk.applied(letter, f"checkpoint-{step}")

    def _delete(self, letter: Delete, step: int) -> None:
        self._keeper.settle()  # it may be being read back at this moment
        training = self._training
        found = self._found(step)
        if found is None:
            return self._desk.refused(letter, f"there is no checkpoint-{step}")
        present, pins = listed(training.run.checkpoints), read_pins(training.run)
        if reason := undeletable(found, present, pins, training.state.best_step, is_over=False):
            return self._desk.refused(letter, reason)
        checkpoint_folders.discard(found.path)
        self._keeper.forget(found)
        self._desk.applied(letter, found.path.name)

    def _found(self, step: int) -> Checkpoint | None:
        return next((c for c in listed(self._training.run.checkpoints) if c.step == step), None)
