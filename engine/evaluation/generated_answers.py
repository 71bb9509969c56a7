"""Answers to evaluation rows while a run trains (`eval.generate`): written down, compared with those of the data."""

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Self

import msgspec

from ftui.evaluation.results import UNANSWERED
from ftui.evaluation.text_measures import mean_scores, score_answer
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, open_private, write_all
from ftui.system.volume import disk_error

from ..generation.answer_prompts import Ending, FinishedAnswer
from ..generation.decode import Prompt
from ..runtime.event_writer import EventWriter
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .rows_to_answer import RowsToAnswer, RowToAnswer, choose_rows


class AnsweredRow(msgspec.Struct, frozen=True):
    """A line of evaluations/step-N.jsonl. `row`: its number in the data, from 1; `prompt`: with the template's marks.

    `scores` are those of `ftui.measures.TEXT_MEASURES` that can be said of it.
    """

    row: int
    prompt: str
    reference: str
    answer: str
    ending: Ending
    scores: dict[str, float]


@dataclass(eq=False)
class AnswerMeasures:
    """Measures the answers of the model as it is."""

    run: Run
    rows: RowsToAnswer
    generator: TextGenerator
    events: EventWriter

    @classmethod
    def of_run(
        cls, run: Run, profile: Profile, data: TrainingData, generator: TextGenerator, events: EventWriter
    ) -> Self | None:
        """Those that the profile asks for, if it does."""
        if data.evaluation is None or not profile.eval.generate:
            return None
        return cls(run, choose_rows(profile.eval, data.evaluation, data.stop_ids), generator, events)

    def measure(self, step: int) -> dict[str, float]:
        """Means of `ftui.measures.TEXT_MEASURES` over the rows; without those that could not be measured.

        Where there is no answer (no memory, or nothing finite), all are left out with a warning: a mean over fewer rows
        is none that could be compared with earlier ones.

        Raises:
            Shutdown: between two tokens.
        """
        rows, missing = self.rows.rows, Counter[str]()
        scores: list[dict[str, float]] = [{} for _ in rows]
        prompts = [Prompt(row.prompt) for row in rows]
        file = AnswerFile(self.run, step, self.events)
        with closing(file), self.generator.answer_ids(prompts, self.rows.max_new_tokens) as answers:
            for number, answer in enumerate(answers, start=1):
                line = self._describe(rows[answer.number], answer)
                file.write(line)
                scores[answer.number] = line.scores
                missing[answer.ending] += answer.ending in UNANSWERED
                self.events.progress(detail=f"{number} of {len(rows)} rows answered")
        for ending, number in (+missing).items():
            self.events.warn(f"{number} of {len(rows)} rows are not answered at step {step}: {UNANSWERED[ending]}")
        return {} if +missing else mean_scores(scores)

    def _describe(self, row: RowToAnswer, answer: FinishedAnswer) -> AnsweredRow:
        tokenizer, text = self.generator.data.tokenizer, self.generator.read(answer.ids)
        reference = self.generator.read(row.reference)
        scores = (
            {}
            if answer.ending in UNANSWERED
            else score_answer(text, reference, num_tokens=len(answer.ids), is_complete=answer.ending == "stop")
        )
        return AnsweredRow(row.row, str(tokenizer.decode(row.prompt)), reference, text, answer.ending, scores)


class AnswerFile:
    """evaluations/step-N.jsonl of a run, written anew; given up with a warning where the disk does not take it."""

    def __init__(self, run: Run, step: int, events: EventWriter) -> None:
        self._path, self._step, self._events = run.evaluations / f"step-{step}.jsonl", step, events
        self._descriptor: int | None = None
        try:
            make_private_folder(run.evaluations, inside=run.folder)
            self._path.unlink(missing_ok=True)
            self._descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            self._give_up(error)

    def write(self, line: AnsweredRow) -> None:
        """Append a line, if the ones before it were taken."""
        if self._descriptor is None:
            return
        try:
            write_all(self._descriptor, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            self.close()
            self._give_up(error)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _give_up(self, error: OSError) -> None:
        fault = disk_error(error, f"{self._path.name} could not be written", self._path.parent.parent)
        self._events.warn(f"the answers of step {self._step} are not kept: {fault.message}")
