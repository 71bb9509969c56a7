"""Rollouts of a run: answers are generated, judged, written down, and only then trained on.

The state of a run names the rollout that its next step is on, by its hash; a checkpoint holds that. A run that resumes
between two steps of a rollout reads it again: the model that sampled it is gone. One that was not finished is made
again whole, and is the same: what is drawn depends on nothing but seed, answer and position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ftui.errors import DataError, ModelError, RewardError
from ftui.evaluation.results import UNANSWERED
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.system.volume import disk_error

from ..generation.decode import Prompt
from ..generation.sampling import Sampling
from ..planning.mixing import reuse_of
from ..rewards.reward_table import RewardTable
from ..rollouts.rollout import Rollout
from ..rollouts.rollout_files import read_rollout, write_rollout
from ..runtime.control_flags import Control
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .advantages import compute_advantages
from .answer_batches import AnswerBatches
from .asked_rows import AskedRow, AskedRows, as_columns
from .old_log_probs import OldLogProbs

MOST_ANSWERS = 2**32
"""More than a rollout has: each answer of a run draws by a number of its own."""

BASELINES = {"grpo": "mean", "rloo": "leave_one_out"}


class AnswerJudge(Protocol):
    """What gives rewards (engine/rewards/)."""

    def score(
        self, prompts: list[Any], completions: list[Any], completion_ids: list[list[int]], columns: dict[str, list[Any]]
    ) -> RewardTable:
        """Raises `RewardError`; the same answers can be given again."""
        ...


@dataclass(eq=False)
class RolloutMaker:
    """Has the answers ready that a step trains on."""

    run: Run
    profile: Profile
    data: TrainingData
    state: TrainState
    generator: TextGenerator
    judge: AnswerJudge
    old_log_probs: OldLogProbs
    batches: AnswerBatches
    control: Control
    events: EventWriter
    disk_wait: DiskWait

    def __post_init__(self) -> None:
        self._reuse = reuse_of(self.profile)
        self._rows = AskedRows(self.data.train, self.data.sources)
        self._loaded = ""
        self._batch_size = self.profile.grpo.max_num_seqs

    def prepare(self, step: int) -> None:
        """Have the answers of `step` (1-based), the next one, in `batches`.

        Raises:
            Shutdown: between two tokens, or while the run waits for a reward function to be mended.
            DataError: it is on a rollout that was trained on before, and that is not there any more.
        """
        number, first = divmod(step - 1, self._reuse.length)
        state, folder = self.state, self.run.rollouts
        if state.rollout != number:
            if first:
                raise DataError(f"The answers that step {step} trains on are not known any more.", hint=GO_BACK)
            rollout = self._make(number, step)
            digest = self.disk_wait.retry(lambda: self._write(number, rollout))
            state.rollout, state.rollout_hash = number, digest
        elif self._loaded != state.rollout_hash:
            rollout = read_rollout(folder, number, state.rollout_hash)
        else:
            return
        start = number * self._reuse.length
        sizes = [len(self.data.plan.step(start + part)) for part in range(1, self._reuse.num_steps + 1)]
        self.batches.load(rollout, sizes, {})
        log_probs = self.old_log_probs.obtain(
            number, state.rollout_hash, self.batches, len(rollout), may_measure=not first
        )
        self.batches.load(rollout, sizes, log_probs)
        self._loaded = state.rollout_hash

    def _write(self, number: int, rollout: Rollout) -> str:
        try:
            return write_rollout(self.run.rollouts, number, rollout)
        except OSError as error:
            raise disk_error(error, f"rollout {number} could not be written", self.run.folder) from error

    def _make(self, number: int, step: int) -> Rollout:
        examples = [
            example
            for part in range(self._reuse.num_steps)
            for row in self.data.plan.step(step + part)
            for example in row
        ]
        asked = [self._rows[example] for example in examples]
        prompts = [self.data.train.example(example)[0].input_ids for example in examples]
        section = self.profile.grpo
        rollout = self._generate(number, asked, prompts)
        table = self._score(rollout, asked)
        groups = compute_advantages(
            table.totals,
            section.num_generations,
            scale=section.scale_rewards,
            baseline=BASELINES[section.adv_estimator],
        )
        return replace(rollout, rewards=table, advantages=groups.advantages.reshape(-1))

    def _generate(self, number: int, asked: Sequence[AskedRow], prompts: Sequence[np.ndarray]) -> Rollout:
        section, size = self.profile.grpo, self.profile.grpo.num_generations
        sampling = Sampling(
            section.temperature, section.top_p, section.top_k, section.min_p, section.repetition_penalty,
            self.profile.train.seed,
        )  # fmt: skip
        wanted = [
            Prompt(ids.tolist(), number * MOST_ANSWERS + place * size + nth)
            for place, ids in enumerate(prompts)
            for nth in range(size)
        ]
        found: list[Any] = [None] * len(wanted)
        with self.generator.answer_ids(
            wanted, section.max_completion_length, sampling=sampling,
            batch_size=min(len(wanted), self._batch_size or len(wanted)), on_smaller=self._note_smaller,
        ) as answers:  # fmt: skip
            for count, answer in enumerate(answers, start=1):
                if answer.ending in UNANSWERED:
                    raise ModelError(f"A prompt of rollout {number} is not answered: {UNANSWERED[answer.ending]}.")
                found[answer.number] = answer
                self.events.progress(detail=f"{count} of {len(wanted)} answers generated")
        decode = self.data.tokenizer.decode
        return Rollout(
            step=self.state.step, seed=self.profile.train.seed, group_size=size,
            rows=np.array([row.number for row in asked]), prompt_ids=list(prompts),
            completion_ids=[np.array(answer.ids, np.int32) for answer in found],
            log_probs=[np.array(answer.log_probs, np.float32) for answer in found],
            is_complete=np.array([answer.ending == "stop" for answer in found]),
            prompts=[str(decode(ids.tolist())) for ids in prompts],
            completions=[str(decode(list(answer.ids), skip_special_tokens=True)) for answer in found],
        )  # fmt: skip

    def _note_smaller(self, size: int) -> None:
        self._batch_size = size
        self.events.warn(f"answers are generated {size} at a time: more did not fit into memory")

    def _score(self, rollout: Rollout, asked: Sequence[AskedRow]) -> RewardTable:
        """The rewards; where a function is broken the run is paused, and tries again when somebody continues it."""
        size = rollout.group_size
        completions = [
            [{"role": "assistant", "content": text}] if asked[number // size].is_chat else text
            for number, text in enumerate(rollout.completions)
        ]
        ids = [one.tolist() for one in rollout.completion_ids]
        prompts, columns = [row.prompt for row in asked for _ in range(size)], as_columns(asked, size)
        while True:
            self.events.progress(detail=f"{len(ids)} answers are scored", at_once=True)
            try:
                return self.judge.score(prompts, completions, ids, columns)
            except RewardError as error:
                self.control.pause(f"{error.message} {error.hint}")


GO_BACK = "Resume from an earlier checkpoint: ftui resume RUN --from STEP"
