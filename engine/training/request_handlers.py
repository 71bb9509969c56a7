"""Letters that need a training run: what each of them does. Evaluations and samples leave the run as it was."""

from collections.abc import Callable

from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, listed
from ftui.runs.pins import read_pins, undeletable, write_pins
from ftui.runs.requests import AnyRequest, Delete, Evaluate, GenerateSamples, Pin, Save, Set, Unpin
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

    def obey(self, request: AnyRequest) -> None:
        """Do what the letter says, or refuse it with the reason."""
        match request:
            case Set():
                self._set(request)
            case Save():
                self._save(request)
            case Evaluate():
                self._evaluate(request)
            case GenerateSamples():
                self._sample(request)
            case Pin(step=step) | Unpin(step=step):
                self._pin(request, step, isinstance(request, Pin))
            case Delete(step=step):
                self._delete(request, step)

    def _set(self, request: Set) -> None:
        """The journal first: a change that was not written down could not be replayed."""
        state = self._training.state
        next_step = state.step + 1
        if not request.settings:
            return self._desk.refused(request, "it changes nothing")
        if request.max_steps is not None and request.max_steps < next_step:
            return self._desk.refused(request, f"step {next_step} is under way: max_steps cannot be less")
        self._desk.applied(request, f"from step {next_step} on")
        for name, value in request.settings.items():
            state.settings = changed(state.settings, Setting(next_step, name, value))

    def _save(self, request: Save) -> None:
        if self._training.state.step == 0:
            return self._desk.refused(request, "no step is finished yet")
        path = self._keeper.save(self._boundary(), "manual")
        write_pins(self._training.run, read_pins(self._training.run) | {self._training.state.step})
        self._desk.applied(request, path.name)

    def _evaluate(self, request: Evaluate) -> None:
        training = self._training
        if training.prepared.evaluation is None:
            return self._desk.refused(request, "the run has no rows to evaluate on")
        before = RngState.capture(training.hardware.device)
        done = evaluate(training, requested=True)
        before.restore(training.hardware.device)
        self._desk.applied(request, f"loss {quantity(done.loss)}")

    def _sample(self, request: GenerateSamples) -> None:
        training = self._training
        prompts = request.prompts or training.profile.eval.sample_prompts
        if not prompts:
            return self._desk.refused(request, "the letter has no prompt and the profile no eval.sample_prompts")
        before = RngState.capture(training.hardware.device)
        with training.logbook.within("evaluating", "samples"):
            answers = sample(training, prompts, requested=True)
        before.restore(training.hardware.device)
        self._desk.applied(request, f"{len(answers)} answered")

    def _pin(self, request: AnyRequest, step: int, wanted: bool) -> None:
        run = self._training.run
        if wanted and self._found(step) is None:
            return self._desk.refused(request, f"there is no checkpoint-{step}")
        pins = read_pins(run)
        write_pins(run, pins | {step} if wanted else pins - {step})
        self._desk.applied(request, f"checkpoint-{step}")

    def _delete(self, request: Delete, step: int) -> None:
        self._keeper.settle()  # it may be being read back at this moment
        training = self._training
        found = self._found(step)
        if found is None:
            return self._desk.refused(request, f"there is no checkpoint-{step}")
        present, pins = listed(training.run.checkpoints), read_pins(training.run)
        if reason := undeletable(found, present, pins, training.state.best_step, has_ended=False):
            return self._desk.refused(request, reason)
        checkpoint_folders.discard(found.path)
        self._keeper.forget(found)
        self._desk.applied(request, found.path.name)

    def _found(self, step: int) -> Checkpoint | None:
        return next((c for c in listed(self._training.run.checkpoints) if c.step == step), None)
