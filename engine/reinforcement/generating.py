"""The first phase of a step on answers: the model, as it is, answers each prompt several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftui.errors import ModelError
from ftui.evaluation.results import UNANSWERED
from ftui.profile.schema import Profile

from ..generation.answer_prompts import FinishedAnswer
from ..generation.decode import Prompt
from ..generation.sampling import Sampling
from ..rollouts.rollout import Rollout
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .asked_rows import AskedRow

MOST_ANSWERS = 2**32
"""More than a rollout has: each answer of a run draws by a number of its own."""


@dataclass(eq=False)
class AnswerGeneration:
    """Generates the answers of a rollout. What is drawn depends on nothing but seed, rollout, answer and position."""

    profile: Profile
    data: TrainingData
    state: TrainState
    generator: TextGenerator
    events: EventWriter

    def __post_init__(self) -> None:
        self.batch_size = self.profile.sampled.max_num_seqs
        """Most answers at once; `None`: all of a rollout."""

    def generate(
        self, number: int, asked: Sequence[AskedRow], prompts: Sequence[np.ndarray], *, first: int = 0,
        stop_ids: Sequence[int] | None = None,
    ) -> Rollout:  # fmt: skip
        """Rollout `number`, not scored: answers to `prompts` (ids, int32), which are those of the rows `asked`; `first`
        others of it were answered before.

        Answers end with one of `stop_ids`, by default those of the data.

        Raises:
            Shutdown: between two tokens.
            ModelError: a prompt cannot be answered.
            GpuMemoryError, HostMemoryError: not even one answer fits.
        """
        size, decode = self.profile.sampled.num_generations, self.data.tokenizer.decode
        wanted = [
            Prompt(ids.tolist(), number * MOST_ANSWERS + place * size + nth)
            for place, ids in enumerate(prompts, start=first)
            for nth in range(size)
        ]
        with self.events.within("generating", f"{len(wanted)} answers"):
            found = self._answer(number, wanted, stop_ids)
        return Rollout(
            step=self.state.step, seed=self.profile.train.seed, group_size=size,
            rows=np.array([row.number for row in asked]), prompt_ids=list(prompts),
            completion_ids=[np.array(answer.ids, np.int32) for answer in found],
            log_probs=[np.array(answer.log_probs, np.float32) for answer in found],
            is_complete=np.array([answer.ending == "stop" for answer in found]),
            prompts=[str(decode(ids.tolist())) for ids in prompts],
            completions=[str(decode(list(answer.ids), skip_special_tokens=True)) for answer in found],
        )  # fmt: skip

    def _answer(self, number: int, wanted: Sequence[Prompt], stop_ids: Sequence[int] | None) -> list[FinishedAnswer]:
        found: dict[int, FinishedAnswer] = {}
        with self.generator.answer_ids(
            wanted, self.profile.sampled.max_completion_length, sampling=sampling_of(self.profile),
            batch_size=min(len(wanted), self.batch_size or len(wanted)), on_smaller=self._note_smaller,
            progress=lambda: f"{len(found)} of {len(wanted)} answers", stop_ids=stop_ids,
        ) as answers:  # fmt: skip
            for answer in answers:
                if answer.ending in UNANSWERED:
                    raise ModelError(f"A prompt of rollout {number} is not answered: {UNANSWERED[answer.ending]}.")
                found[answer.number] = answer
        return [found[place] for place in range(len(wanted))]

    def _note_smaller(self, size: int) -> None:
        self.batch_size = size
        self.events.warn(f"answers are generated {size} at a time: more did not fit into memory")


def sampling_of(profile: Profile) -> Sampling:
    """How the answers of a rollout are drawn."""
    section = profile.sampled
    return Sampling(
        section.temperature, section.top_p, section.top_k, section.min_p, section.repetition_penalty, profile.train.seed
    )


def count_tokens(rollout: Rollout) -> int:
    """Tokens of its answers."""
    return sum(map(len, rollout.completion_ids))


def texts_of(rollout: Rollout, asked: Sequence[AskedRow]) -> list[Any]:
    """The answers as functions get them: texts, or where the row is a conversation the message that continues it."""
    return [
        [{"role": "assistant", "content": text}] if asked[place // rollout.group_size].is_chat else text
        for place, text in enumerate(rollout.completions)
    ]
