"""Answers whoever asks a run in training, with the weights it has now; afterwards it trains on as if nobody had asked.

What was computed for a conversation is kept while the run is paused. As soon as it trains on, it is dropped: keys and
values of other weights would give another answer, and a step has all the memory that it has without questions.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType

import msgspec

from ftui.errors import DataError, DiskError, GpuMemoryError, HostMemoryError, NonFiniteError
from ftui.helper.chat_facts import RunAnswer
from ftui.profile.schema import Profile
from ftui.runs.events import Answered
from ftui.runs.requests import AnswerChat
from ftui.runs.run_folder import Run
from ftui.system.files import replace_file
from ftui.system.volume import disk_error

from ..distributed.sharded_base import ShardedBase
from ..models.performance import uncompiled
from ..models.weights import is_adapted
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from ..system.memory import UpdateMemoryError, first_line, is_out_of_memory, no_memory, release_cached_memory
from ..system.rng import RngState
from ..system.train_state import TrainState
from .conversation import Answer, Speaker, describe_model
from .load_trained import AnsweringModel
from .sampling import Sampling

WRITE_SECONDS = 0.1  # between two looks that a reader of the answer can take
MOST_TOKENS = 8192  # of an answer: its file has 300 bytes for each


class AnswerRefusedError(Exception):
    """Why there is no answer."""


@dataclass(eq=False)
class RequestAnswerer:
    """Answers conversations between two units of work. As a context: what it has written is gone when it ends."""

    run: Run
    profile: Profile
    model: AnsweringModel
    state: TrainState
    control: Control
    events: EventWriter
    _speakers: dict[str, Speaker] = field(default_factory=dict)

    def __enter__(self) -> None:
        self._remove()  # of an attempt that was killed

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):  # the volume is gone, or a folder stands there
            self.run.answer.unlink(missing_ok=True)

    def forget(self) -> None:
        """Training goes on: let go of what was computed for conversations."""
        if self._speakers:
            self._speakers.clear()
            if self.model.hardware.device.type != "cpu":  # 0.3 s, which a CPU has nothing of
                release_cached_memory(self.model.hardware.device)

    def answer(self, request: AnswerChat) -> str:
        """Answer, and put it into answer.json as it grows; returns in words how it ended.

        Raises:
            AnswerRefusedError: nothing here can answer that, or the file cannot be written.
            Shutdown: between two tokens.
            UpdateMemoryError: memory ran out over a sharded base.
        """
        self._check(request)
        begun, answers = time.monotonic(), list[Answer]()
        problem = ""
        with self.events.within("evaluating", "answers a question, training stands still"):
            try:
                with self._undisturbed():
                    self._speak(request, begun, answers)
            except UpdateMemoryError:
                raise
            except (DataError, DiskError, GpuMemoryError, HostMemoryError, NonFiniteError) as error:
                problem = error.message
            finally:
                num_tokens, seconds = sum(len(answer.tokens) for answer in answers), time.monotonic() - begun
                step = self.state.step
                self.events.write(Answered(request=request.id, step=step, seconds=seconds, num_tokens=num_tokens))
        if problem:
            raise AnswerRefusedError(problem)
        return f"{num_tokens} tokens"

    def _check(self, request: AnswerChat) -> None:
        if self.profile.gives_scores:
            raise AnswerRefusedError("a reward model gives scores, and answers no prompts")
        if len(request.sides) != len(request.conversations):
            raise AnswerRefusedError("each side has a conversation of its own")
        if "base" in request.sides and not is_adapted(self.model.model):
            raise AnswerRefusedError("it trains all weights, and has no base beside them: --device cpu loads one")
        if "base" in request.sides and self.profile.adapter.name_or_path is not None:
            raise AnswerRefusedError("it began from an adapter that it has trained on: --device cpu loads that one")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """A block after which the model trains on as it was: mode, generators, which weights are trained."""
        model, device = self.model.model, self.model.hardware.device
        rng, trained = RngState.capture(device), [(weight, weight.requires_grad) for weight in model.parameters()]
        model.eval()
        try:
            with uncompiled(self.profile.train):
                yield
        finally:
            model.train()
            for weight, is_trained in trained:  # PEFT turns all of an adapter on as it comes back
                if weight.requires_grad != is_trained:
                    weight.requires_grad_(is_trained)
            rng.restore(device)

    def _speak(self, request: AnswerChat, begun: float, answers: list[Answer]) -> None:
        """Add the answers to the list, and then tokens to each by turns."""
        keys = msgspec.structs.asdict(request.sampling)
        most, next_write, problem = min(keys.pop("max_new_tokens"), MOST_TOKENS), 0.0, ""
        try:
            for side, turns in zip(request.sides, request.conversations, strict=True):
                messages = [{"role": turn.role, "content": turn.content} for turn in turns]
                answers.append(self._speaker(side).answer(messages, Sampling(**keys), most))
            while unfinished := [answer for answer in answers if not answer.has_ended]:
                self.control.poll_at_once()
                now = time.monotonic()
                if request.id in self.control.ended_answers or now - begun > request.most_seconds:
                    break
                for answer in unfinished:
                    answer.add_token()
                self.events.progress()
                if now >= next_write:
                    next_write = now + WRITE_SECONDS
                    self._write(request, answers)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        if problem:
            self._finish_pass(problem)
            raise no_memory(self.model.hardware.device, "this conversation beside the training", "")
        self._write(request, answers, is_whole=True)

    def _finish_pass(self, problem: str) -> None:
        """Memory ran out in a pass: where other ranks of a sharded base wait in it, they are let out."""
        base: ShardedBase | None = getattr(self.model.bare, "sharded_base", None)
        if base is None:
            return
        self.forget()
        if not base.finish_pass():
            raise UpdateMemoryError(
                f"Memory ran out in an answer, in a pass in which the other ranks wait ({problem}).",
                hint="The run goes on from its newest checkpoint: ask that one, or in a shorter conversation.",
            )

    def _speaker(self, side: str) -> Speaker:
        if side not in self._speakers:
            is_now = side == "now" and is_adapted(self.model.model)
            self._speakers[side] = Speaker(self.model, self.model.model.active_adapter if is_now else None)
        return self._speakers[side]

    def _write(self, request: AnswerChat, answers: list[Answer], *, is_whole: bool = False) -> None:
        texts, facts = [answer.text for answer in answers], describe_model(self.model)
        whole = [answer.facts() for answer in answers] if is_whole else []
        try:
            replace_file(
                self.run.answer, msgspec.json.encode(RunAnswer(request.id, self.state.step, facts, texts, whole))
            )
        except OSError as error:
            raise disk_error(error, "The answer could not be written", self.run.folder) from error
