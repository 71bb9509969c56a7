"""Evaluation by reward: held-out prompts are answered and scored as in training, and nothing is learned from them.

Each prompt is answered once, greedily; with `num_generations_eval` so many times, sampled as in training, by the same
numbers at each evaluation: two differ by the model alone. No random generator moves.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from ftui.evaluation.results import UNANSWERED
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run

from ..data.load_rows import DataSplit
from ..generation.answer_prompts import Ending, FinishedAnswer
from ..generation.decode import Prompt
from ..generation.sampling import Sampling
from ..reinforcement.asked_rows import AskedRow, AskedRows
from ..reinforcement.rollout_metrics import measure_answers
from ..reinforcement.scoring import AnswerScoring
from ..rollouts.rollout import Rollout
from ..runtime.event_writer import EventWriter
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .generated_answers import AnsweredRow, AnswerFile

FIRST_ANSWER = 2**63
"""No answer that is trained on draws by its number, or by those after it."""


@dataclass(eq=False)
class RewardMeasures:
    """Measures the rewards of the model as it is on the evaluation rows of `data`; there must be some."""

    run: Run
    profile: Profile
    data: TrainingData
    generator: TextGenerator
    scoring: AnswerScoring
    events: EventWriter

    def __post_init__(self) -> None:
        assert self.data.evaluation is not None, "there are rows"
        self._split: DataSplit = self.data.evaluation
        rows = AskedRows(self._split, self.data.eval_sources)
        self._asked: Sequence[AskedRow] = [rows[number] for number in range(len(self._split))]
        self._times = self.profile.sampled.num_generations_eval or 1

    @property
    def fingerprint(self) -> str:
        """What stands for how it measures, SHA-256 (hex): under another one values are on another scale."""
        sampled = self.profile.sampled
        made_from = [
            self.scoring.judge.fingerprint, sampled.num_generations_eval, sampled.max_completion_length,
            repr(self._sampling()),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()

    def measure(self, step: int) -> dict[str, float | None]:
        """Means over the answers, by the names that steps have them by; nothing where one could not be given.

        Raises:
            Shutdown: between two tokens, or while functions are at work or the run waits for one to be mended.
        """
        answers = self._answer()
        missing = Counter(answer.ending for answer in answers if answer.ending in UNANSWERED)
        for ending, number in missing.items():
            self.events.warn(
                f"{number} of {len(answers)} answers are missing at step {step}: {UNANSWERED[ending]}. Without them "
                "their reward is not told."
            )
        if missing:
            return {}
        rollout = self._as_rollout(step, answers)
        rewards = self.scoring.score(rollout, self._asked)
        if rewards.errors:  # the sum of the others is on another scale
            rewards = self.scoring.score(rollout, self._asked)
        if rewards.errors:
            failed = ", ".join(rewards.errors)
            self.events.warn(f"the reward of the answers is not told at step {step}: {failed} failed twice")
            return {}
        scored = replace(rollout, rewards=rewards)
        self._write_down(step, scored, [answer.ending for answer in answers])
        return measure_answers(scored, range(len(scored)))

    def _answer(self) -> list[FinishedAnswer]:
        prompts = [
            Prompt(self._split.example(row)[0].input_ids.tolist(), FIRST_ANSWER + row * self._times + nth)
            for row in range(len(self._split))
            for nth in range(self._times)
        ]
        found: dict[int, FinishedAnswer] = {}
        with self.generator.answer_ids(
            prompts, self.profile.sampled.max_completion_length, sampling=self._sampling(),
            progress=lambda: f"{len(found)} of {len(prompts)} answers",
        ) as answers:  # fmt: skip
            for answer in answers:
                found[answer.number] = answer
        return [found[place] for place in range(len(prompts))]

    def _sampling(self) -> Sampling:
        section, seed = self.profile.sampled, self.profile.train.seed
        if section.num_generations_eval is None:
            return Sampling(repetition_penalty=section.repetition_penalty)
        return Sampling(
            section.temperature, section.top_p, section.top_k, section.min_p, section.repetition_penalty, seed
        )

    def _as_rollout(self, step: int, answers: Sequence[FinishedAnswer]) -> Rollout:
        prompt_ids = [self._split.example(row)[0].input_ids for row in range(len(self._split))]
        return Rollout.of_answers(
            prompt_ids, answers, self.data.tokenizer.decode, step=step, seed=self.profile.train.seed,
            group_size=self._times, rows=[row.number for row in self._asked],
        )  # fmt: skip

    def _write_down(self, step: int, scored: Rollout, endings: Sequence[Ending]) -> None:
        """The answers with what they got, for whoever reads them."""
        table = scored.rewards
        assert table is not None, "it is scored"
        with closing(AnswerFile(self.run, step, self.events)) as file:
            for number, (text, ending) in enumerate(zip(scored.completions, endings, strict=True)):
                row = number // self._times
                got = {**dict(zip(table.names, table.values[number], strict=True)), "reward": table.totals[number]}
                scores = {name: float(value) for name, value in got.items() if not np.isnan(value)}
                file.write(AnsweredRow(int(scored.rows[row]) + 1, scored.prompts[row], "", text, ending, scores))
