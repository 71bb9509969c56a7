"""What each control request does to a training run. Evaluations and samples leave the run as it was."""

from collections.abc import Collection
from dataclasses import dataclass

from ftui.errors import DiskError
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint, checkpoints_in
from ftui.runs.describe import evaluation_words
from ftui.runs.pins import read_pins, undeletable, write_pins
from ftui.runs.requests import AnswerChat, AnyRequest, Delete, Evaluate, GenerateSamples, Pin, Save, Set, Unpin
from ftui.runs.run_folder import Run

from ..checkpoints.checkpoint import CheckpointManager
from ..generation.answer_requests import AnswerRefusedError, RequestAnswerer
from ..models.model_parts import ModelParts
from ..optim.learning_rate import LearningRate
from ..runtime.event_writer import EventWriter
from ..runtime.request_inbox import RequestInbox
from ..system.rng import RngState
from ..system.train_state import DECAY_END, Setting, TrainState
from .evaluate import Evaluator
from .generate import TextGenerator
from .prepare import TrainingData
from .triggers import last_step


@dataclass(eq=False)
class RequestHandler:
    """Obeys requests and answers them."""

    run: Run
    data: TrainingData
    learning_rate: LearningRate
    parts: ModelParts
    state: TrainState
    events: EventWriter
    inbox: RequestInbox
    evaluator: Evaluator | None
    generator: TextGenerator
    answerer: RequestAnswerer
    checkpoints: CheckpointManager

    def handle(self, request: AnyRequest) -> None:
        """Do what the request says, or refuse it with the reason."""
        match request:
            case Set():
                self._set(request)
            case Save():
                self._save(request)
            case Evaluate():
                self._evaluate(request)
            case GenerateSamples():
                self._sample(request)
            case AnswerChat():
                self._answer(request)
            case Pin(step=step) | Unpin(step=step):
                self._pin(request, step, isinstance(request, Pin))
            case Delete(step=step):
                self._delete(request, step)

    def _set(self, request: Set) -> None:
        """The journal first: a change that was not written down could not be replayed."""
        next_step, settings = self.state.step + 1, request.settings
        if request.max_steps is not None and request.max_steps < next_step:
            return self.inbox.refuse(request, f"step {next_step} is under way: max_steps cannot be less")
        if request.max_steps is not None and request.max_steps > self.data.last_step_with_rows:
            end = self.data.last_step_with_rows
            return self.inbox.refuse(
                request,
                f"the reference model was measured on the rows of {end} steps only: fork the run with a greater "
                "train.max_steps",
            )
        if request.decay is not None:
            settings[DECAY_END] = request.max_steps or last_step(self.data.plan, self.state)
        if not settings:
            return self.inbox.refuse(request, "it changes nothing")
        lines = [f"from step {next_step} on"]
        if settings.keys() & {"max_steps", DECAY_END}:
            lines += self.learning_rate.describe_end(settings, self.state, self.run.name)
        self.inbox.answer(request, "\n".join(lines), settings)
        for name, value in settings.items():
            self.state.change(Setting(next_step, name, value))

    def _save(self, request: Save) -> None:
        if self.state.step == 0:
            return self.inbox.refuse(request, "no step is finished yet")
        path = self.checkpoints.save("manual")
        self._write_pins(request, read_pins(self.run) | {self.state.step}, path.name)

    def _evaluate(self, request: Evaluate) -> None:
        if self.evaluator is None:
            return self.inbox.refuse(request, "the run has no rows to evaluate on")
        rng = RngState.capture(self.parts.device)
        evaluation = self.evaluator.evaluate(requested=True)
        rng.restore(self.parts.device)
        self.inbox.answer(request, evaluation_words(evaluation))

    def _sample(self, request: GenerateSamples) -> None:
        if self.generator.profile.gives_scores:
            return self.inbox.refuse(request, "a reward model gives scores, and answers no prompts")
        prompts = request.prompts or self.generator.profile.eval.sample_prompts
        if not prompts:
            return self.inbox.refuse(request, "the request has no prompt and the profile no eval.sample_prompts")
        rng = RngState.capture(self.parts.device)
        with self.events.within("evaluating", "samples"):
            answers = self.generator.answer(prompts, requested=True)
        rng.restore(self.parts.device)
        self.inbox.answer(request, f"{len(answers)} answered")

    def _answer(self, request: AnswerChat) -> None:
        try:
            detail = self.answerer.answer(request)
        except AnswerRefusedError as refusal:
            return self.inbox.refuse(request, str(refusal))
        self.inbox.answer(request, detail)

    def _pin(self, request: AnyRequest, step: int, pin: bool) -> None:
        if pin and self._checkpoint(step) is None:
            return self.inbox.refuse(request, f"there is no checkpoint-{step}")
        pins = read_pins(self.run)
        self._write_pins(request, pins | {step} if pin else pins - {step}, f"checkpoint-{step}")

    def _write_pins(self, request: AnyRequest, steps: Collection[int], name: str) -> None:
        try:
            write_pins(self.run, steps)
        except DiskError as error:  # everything else waits for room by itself
            return self.inbox.refuse(request, error.message)
        self.inbox.answer(request, name)

    def _delete(self, request: Delete, step: int) -> None:
        self.checkpoints.finish()  # the best one may be under way: until it is whole, the one before must not go
        checkpoint = self._checkpoint(step)
        if checkpoint is None:
            return self.inbox.refuse(request, f"there is no checkpoint-{step}")
        present, pins = checkpoints_in(self.run.checkpoints), read_pins(self.run)
        if reason := undeletable(checkpoint, present, pins, self.state.best_step, has_ended=False):
            return self.inbox.refuse(request, reason)
        checkpoint_folders.discard(checkpoint.path)
        self.checkpoints.forget(checkpoint)
        self.inbox.answer(request, checkpoint.path.name)

    def _checkpoint(self, step: int) -> Checkpoint | None:
        return next((c for c in checkpoints_in(self.run.checkpoints) if c.step == step), None)
