"""Answers while a run trains, greedily: the same model gives the same answer, and no random generator moves."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ftui.evaluation.results import UNANSWERED
from ftui.profile.schema import Profile
from ftui.runs.events import Sampled

from ..data.tokens.chat_template import fix_date
from ..distributed.sharded_base import alone
from ..generation.answer_prompts import AnswerGenerator, FinishedAnswer, answer_prompts, finished_answers, in_order
from ..generation.decode import Prompt, why_unanswerable
from ..generation.sampling import Sampling
from ..models.model_parts import ModelParts
from ..models.performance import uncompiled
from ..models.weights import is_adapted
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from .prepare import TrainingData


@dataclass(eq=False)
class TextGenerator:
    """Answers prompts with the model as it is."""

    profile: Profile
    data: TrainingData
    parts: ModelParts
    state: TrainState
    control: Control
    events: EventWriter
    generate: AnswerGenerator = answer_prompts
    """What answers; another one than the loop here may draw other answers than a run that is repeated."""

    def answer(self, prompts: Sequence[str], *, requested: bool = False) -> list[str]:
        """Answer the prompts; each answer goes to the journal, in the order of the prompts.

        A prompt that the model cannot answer (too long, without tokens, no memory, nothing finite) is left out with a
        warning.

        Raises:
            Shutdown: between two tokens.
        """
        answers, encoded = [], {prompt: self._encode(prompt) for prompt in prompts}
        reasons = {prompt: why_unanswerable(self.parts.model, ids) for prompt, ids in encoded.items()}
        for prompt, reason in reasons.items():
            if reason:
                self.events.warn(f"{prompt!r:.60} {reason}")
        fitting = [prompt for prompt in prompts if not reasons[prompt]]
        with self.answer_ids(
            [Prompt(encoded[prompt]) for prompt in fitting], self.profile.eval.sample_max_new_tokens
        ) as finished:
            for answer in in_order(finished):
                prompt = fitting[answer.number]
                if answer.ending in UNANSWERED:
                    self.events.warn(f"{prompt!r:.60} is not answered: {UNANSWERED[answer.ending]}")
                    continue
                text = self.read(answer.ids)
                self.events.write(Sampled(step=self.state.step, prompt=prompt, completion=text, requested=requested))
                answers.append(text)
        return answers

    @contextmanager
    def answer_ids(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int,
        *,
        sampling: Sampling | None = None,
        progress: Callable[[], str] = lambda: "",
    ) -> Iterator[Iterator[FinishedAnswer]]:
        """A block with rank 0's answers to prompts, each as soon as it is finished; the model trains again after it.

        Greedily without `sampling`. `progress` says how far it is, for whoever watches.

        Raises:
            Shutdown: between two tokens.
            GpuMemoryError, HostMemoryError: as `alone`.
        """

        def look_around() -> None:
            self.control.poll(RequestLevel.SAVE)
            self.events.progress(detail=progress())

        sampling, size = sampling or Sampling(), self.profile.eval.per_device_eval_batch_size
        with (
            alone(self.parts),
            self.passes(prompts, max_new_tokens, sampling, size, before_pass=look_around) as found,
        ):
            yield finished_answers(found)

    @contextmanager
    def passes(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int,
        sampling: Sampling,
        batch_size: int,
        *,
        before_pass: Callable[[], None] = lambda: None,
        on_smaller: Callable[[int], None] = lambda size: None,
        stop_ids: Sequence[int] | None = None,
    ) -> Iterator[Iterator[FinishedAnswer | None]]:
        """A block with what `answer_prompts` gives: the model does nothing else in it, and trains again after it.

        Answers end with one of `stop_ids`, without it with those of the data.
        """
        model = self.parts.model
        model.eval()
        try:
            with self.parts.autocast(), uncompiled(self.profile.train):
                yield self.generate(
                    model.get_base_model() if is_adapted(model) else model, prompts, sampling,
                    stop_ids=self.data.stop_ids if stop_ids is None else stop_ids, max_new_tokens=max_new_tokens,
                    batch_size=batch_size, before_pass=before_pass, on_smaller=on_smaller,
                )  # fmt: skip
        finally:
            model.train()

    def read(self, ids: Sequence[int]) -> str:
        """The text of an answer."""
        return str(self.data.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def _encode(self, prompt: str) -> list[int]:
        tokenizer: Any = self.data.tokenizer
        if self.profile.run.stage == "pretrain" or not tokenizer.chat_template:
            return list(tokenizer(prompt)["input_ids"])
        fix_date(tokenizer.get_chat_template())
        turns = [{"role": "user", "content": prompt}]
        return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])
