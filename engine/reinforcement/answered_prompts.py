"""Prompts of one rollout, answered and scored as they are asked for.

Answers are written down and journaled before they are scored, those of further prompts together with those before: a
crash while they are scored costs the scoring alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ftui.runs.records.rollout_records import AnswersGenerated

from ..data.load_rows import DataSplit
from ..rollouts.rollout import Rollout
from ..runtime.event_writer import EventWriter
from .asked_rows import AskedRow, AskedRows
from .generating import AnswerGeneration, count_tokens
from .scoring import AnswerScoring


@dataclass(eq=False)
class AnsweredPrompts:
    """Answers the prompts of rollout `number` by the model as it is.

    Args:
        weights: what is known of the model.
        answers: those that an attempt before had from the same weights, in the order in which they are asked for.
        keep: writes answers down; their hash.
        clock: seconds of work.
    """

    number: int
    weights: str
    train: DataSplit
    rows: AskedRows
    generation: AnswerGeneration
    scoring: AnswerScoring
    events: EventWriter
    answers: Rollout | None
    keep: Callable[[Rollout], str]
    clock: Callable[[], float]
    generation_seconds: float = 0.0
    scoring_seconds: float = 0.0
    num_prompts: int = 0
    """Those that were asked for."""

    def answer(self, examples: Sequence[int]) -> Rollout:
        """The answers to the prompts of these further examples, scored.

        Raises:
            Shutdown: between two tokens, or while functions are at work or the run waits for one to be mended.
        """
        asked = [self.rows[example] for example in examples]
        first, self.num_prompts = self.num_prompts, self.num_prompts + len(examples)
        there = 0 if self.answers is None else len(self.answers.prompts)
        if there < self.num_prompts:
            self._generate(there, examples[there - first :], asked[there - first :])
        assert self.answers is not None, "they are there"
        rollout, started = self.answers.take(range(first, self.num_prompts)), self.clock()
        rewards = self.scoring.score(rollout, asked, needs_reward=not first)  # further ones may be few
        self.scoring_seconds += self.clock() - started
        return replace(rollout, rewards=rewards)

    def _generate(self, there: int, examples: Sequence[int], asked: Sequence[AskedRow]) -> None:
        """Answer these prompts, which come after `there` others, and write all down."""
        started = self.clock()
        prompts = [self.train.example(example)[0].input_ids for example in examples]
        new = self.generation.generate(self.number, asked, prompts, first=there)
        seconds = self.clock() - started
        self.answers = new if self.answers is None else self.answers.join(new)
        record = AnswersGenerated(
            number=self.number, step=new.step, hash=self.keep(self.answers), weights=self.weights,
            num_answers=len(self.answers), num_tokens=count_tokens(self.answers), seconds=seconds,
        )  # fmt: skip
        self.events.write(record, durable=True)
        self.generation_seconds += seconds
