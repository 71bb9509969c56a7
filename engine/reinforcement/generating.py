"""The first phase of a step on answers: the model, as it is, answers each prompt several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ftui.errors import ModelError
from ftui.evaluation.results import UNANSWERED
from ftui.profile.schema import Profile
from ftui.rollouts.dealt_answers import dealt_size

from ..distributed.process_group import Action, ProcessGroup, RankCommand
from ..distributed.shared_work import Work, share_work
from ..generation.answer_prompts import FinishedAnswer, in_batch_order
from ..generation.decode import Prompt
from ..generation.sampling import Sampling
from ..models.model_parts import ModelParts
from ..rollouts.rollout import Rollout
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .asked_rows import AskedRow

MOST_ANSWERS = 2**32
"""More than a rollout has: each answer of a run draws by a number of its own."""


GENERATE = 0
"""The kind of work, for `RankCommand`."""


class _Asked(msgspec.Struct, frozen=True):
    """Prompts (ids) that are to be answered, after `first` others of their rollout; `None`: the data's stop ids."""

    first: int
    prompts: list[list[int]]
    stop_ids: Sequence[int] | None


class _Finished(msgspec.Struct, frozen=True):
    """What a rank has generated: answers by their number among all; `batch_size` is what it has come down to."""

    answers: dict[int, FinishedAnswer]
    batch_size: int | None


@dataclass(eq=False)
class AnswerGeneration:
    """Generates the answers of a rollout, each rank its part. What is drawn depends on nothing but seed, rollout,
    answer and position."""

    profile: Profile
    data: TrainingData
    parts: ModelParts
    ranks: ProcessGroup
    state: TrainState
    generator: TextGenerator
    control: Control
    events: EventWriter

    def __post_init__(self) -> None:
        self.batch_size = self.profile.sampled.max_num_seqs
        """Most answers at once; `None`: all of a rollout."""
        self._told = [self.batch_size] * self.ranks.size
        """On rank 0: that of each rank as its journal has it."""

    def generate(
        self, number: int, asked: Sequence[AskedRow], prompts: Sequence[np.ndarray], *, first: int = 0,
        stop_ids: Sequence[int] | None = None,
    ) -> Rollout:  # fmt: skip
        """On rank 0: rollout `number`, not scored: answers to `prompts` (ids, int32), which are those of the rows
        `asked`; `first` others of it were answered before.

        Answers end with one of `stop_ids`, by default those of the data.

        Raises:
            Shutdown: between two tokens.
            ModelError: a prompt cannot be answered.
            GpuMemoryError, HostMemoryError: not even one answer fits.
        """
        size = self.profile.sampled.num_generations
        with self.events.within("generating", f"{len(prompts) * size} answers"):
            found = self._answer_together(number, _Asked(first, [ids.tolist() for ids in prompts], stop_ids))
        return Rollout.of_answers(
            prompts, found, self.data.tokenizer.decode, step=self.state.step, seed=self.profile.train.seed,
            group_size=size, rows=[row.number for row in asked],
        )  # fmt: skip

    def _answer_together(self, number: int, asked: _Asked) -> list[FinishedAnswer]:
        num_answers = len(asked.prompts) * self.profile.sampled.num_generations

        def look_around(num_finished: int) -> None:
            self.control.poll(RequestLevel.SAVE)
            self.events.progress(detail=f"{num_finished} of {num_answers} answers")

        order = RankCommand(Action.SHARE, number, GENERATE)
        found: dict[int, FinishedAnswer] = {}
        words = msgspec.msgpack.encode(asked)
        work = self.answer_part(number, words)
        for rank, data in enumerate(share_work(self.ranks, self.parts, order, words, work, look_around)):
            own = msgspec.msgpack.decode(data, type=_Finished)
            found |= own.answers
            if rank and own.batch_size != self._told[rank]:
                self.events.warn(f"rank {rank}: {_smaller(own.batch_size)}")
                self._told[rank] = own.batch_size
        return [found[place] for place in range(num_answers)]

    def answer_part(self, number: int, asked: bytes) -> Work:
        """This rank's part of the answers to what is asked (`_Asked`); whoever asks for the next pass looks around.

        Raises:
            ModelError, GpuMemoryError, HostMemoryError: see `generate`.
        """
        section, wish = self.profile.sampled, msgspec.msgpack.decode(asked, type=_Asked)
        size = section.num_generations
        own = share_of_answers(wish.prompts, size, section.max_num_seqs, self.ranks)
        first = number * MOST_ANSWERS + wish.first * size
        wanted = [Prompt(wish.prompts[one // size], first + one) for one in own]
        found: dict[int, FinishedAnswer] = {}
        with self.generator.passes(
            wanted, section.max_completion_length, sampling_of(self.profile),
            min(len(own), self.batch_size or len(own)), on_smaller=self._note_smaller, stop_ids=wish.stop_ids,
        ) as passes:  # fmt: skip
            for answer in passes:
                if answer is None:
                    yield len(found)
                elif answer.ending in UNANSWERED:
                    raise ModelError(f"A prompt of rollout {number} is not answered: {UNANSWERED[answer.ending]}.")
                else:
                    found[own[answer.number]] = answer
        return msgspec.msgpack.encode(_Finished(found, self.batch_size))

    def _note_smaller(self, size: int) -> None:
        self.batch_size = size
        self.events.warn(_smaller(size))


def _smaller(size: int | None) -> str:
    return f"answers are generated {size} at a time: more did not fit into memory"


def share_of_answers(
    prompts: Sequence[Sequence[int]], group_size: int, max_num_seqs: int | None, ranks: ProcessGroup
) -> list[int]:
    """The answers that a rank generates, of all to these prompts: batches of `max_num_seqs`, or groups, dealt in turn,
    the longest prompts first.

    Where no rank takes more than `max_num_seqs`, the batches are the same for any number of ranks.
    """
    num_answers = len(prompts) * group_size
    size = dealt_size(num_answers, group_size, max_num_seqs, ranks.size)
    order = in_batch_order([prompts[one // group_size] for one in range(num_answers)])
    dealt = [order[start : start + size] for start in range(0, num_answers, size)]
    return [one for batch in dealt[ranks.rank :: ranks.size] for one in batch]


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
