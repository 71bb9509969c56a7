"""A rollout phase by phase, as a run makes it and learns from it: for `ftui estimate --probe` and `ftui profile`.

Nothing of it is kept, and what is learned from it is drawn: answers that are all cut off would get the same reward.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ftui.errors import ModelError
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.system.input_files import read_input

from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts
from ..planning.plan import Reuse
from ..reinforcement.answer_batches import AnswerBatches, LogProbs
from ..reinforcement.asked_rows import AskedRows
from ..reinforcement.generating import AnswerGeneration
from ..reinforcement.old_log_probs import OldLogProbs
from ..reinforcement.ppo_rollouts import TokenLearning
from ..reinforcement.scoring import AnswerJudge, texts_to_score
from ..rewards.reward_table import RewardTable
from ..rewards.run_rewards import open_run_rewards
from ..rewards.score_answers import check_rewarded
from ..rewards.score_with_model import load_scorers
from ..rollouts.rollout import Rollout
from ..runtime.control_flags import Control
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.generate import TextGenerator
from ..training.prepare import TrainingData
from .phase_clock import PhaseClock


@contextmanager
def measured_rollout(
    run: Run, profile: Profile, data: TrainingData, parts: ModelParts, events: EventWriter, clock: PhaseClock
) -> Iterator["MeasuredRollout"]:
    """A block in which phases of rollouts can be taken. Whoever calls it has the consent to the reward functions' code.

    Raises:
        RewardError, ModelError: a reward function or a reward model cannot be loaded.
    """
    scorers = load_scorers(profile, parts.hardware, lambda detail: None, events.warn, lambda: None)

    def read_code(path: str) -> str:
        return read_input(Path(path)).decode()

    with open_run_rewards(run, profile.rewards, events.warn, scorers, read_code=read_code) as judge:
        yield MeasuredRollout(run, profile, data, parts, events, judge, clock)


@dataclass(eq=False)
class MeasuredRollout:
    """Takes phases, each timed by `clock` under its name: `generating`, `scoring`, `log_probs`."""

    run: Run
    profile: Profile
    data: TrainingData
    parts: ModelParts
    events: EventWriter
    judge: AnswerJudge
    clock: PhaseClock

    def answer(
        self, examples: Sequence[int], stop_ids: Sequence[int] | None = None, at_once: int | None = None
    ) -> Rollout:
        """The model's answers to the rows of `examples`; they are scored, and get other rewards.

        Answers end with one of `stop_ids`, by default those of the data: if there are none, all are cut off. `at_once`:
        how many are generated together, by default as many as may be.

        Raises:
            ModelError: a prompt cannot be answered, or memory ran out.
            RewardError: a reward function is broken.
        """
        state, rows, control = TrainState(), AskedRows(self.data.train, self.data.sources), Control()
        generator = TextGenerator(self.profile, self.data, self.parts, state, control, self.events)
        generation = AnswerGeneration(
            self.profile, self.data, self.parts, ProcessGroup(), state, generator, control, self.events
        )
        generation.batch_size = at_once or generation.batch_size
        asked, wanted = [rows[example] for example in examples], generation.batch_size
        prompts = [self.data.train.example(example)[0].input_ids for example in examples]
        with self.clock.phase("generating"):
            rollout = generation.generate(0, asked, prompts, stop_ids=stop_ids)
        if generation.batch_size != wanted:
            key = f"{self.profile.run.stage}.max_num_seqs"
            raise ModelError(
                f"{wanted or len(rollout)} answers at once do not fit into memory.",
                hint=f"Set {key} = {generation.batch_size}.",
            )
        with self.clock.phase("scoring"):
            check_rewarded(self.judge.score(*texts_to_score(rollout, asked)))
        return _with_drawn_rewards(rollout)

    def learn(self, rollout: Rollout, num_prompts: Sequence[int], reuse: Reuse) -> AnswerBatches:
        """The micro-batches of the steps on it, with all that is measured before them; see `AnswerBatches.load`.

        Raises:
            GpuMemoryError, HostMemoryError: not even one answer fits.
        """
        is_ppo, control, alone = self.profile.run.stage == "ppo", Control(), ProcessGroup()
        layout = self.parts.layout
        batches = AnswerBatches(reuse, self.data.pad_id, alone, layout, masks_truncated=False, by_token=is_ppo)
        batches.load(rollout, num_prompts, {})
        disk_wait = DiskWait(self.run, self.events, control, 0)
        measured = OldLogProbs(self.run, self.profile, self.parts, alone, control, self.events, disk_wait)
        values: LogProbs = {}
        if measured.names:
            with self.clock.phase("log_probs"):
                if is_ppo:
                    rollout = TokenLearning(self.profile.ppo, TrainState(), measured, batches).complete(0, rollout)
                    values = rollout.tokens
                else:
                    values = measured.measure(0, batches, len(rollout))
        batches.load(rollout, num_prompts, values)
        return batches


def _with_drawn_rewards(rollout: Rollout) -> Rollout:
    """The same, as if no answer was cut off and all were worth something else."""
    drawn = np.random.default_rng(rollout.seed).random(len(rollout))
    return replace(
        rollout, is_complete=np.ones(len(rollout), bool), rewards=RewardTable(["drawn"], drawn[:, None], np.ones(1)),
        advantages=(drawn - 0.5).astype(np.float32),
    )  # fmt: skip


def repeat_answers(rollout: Rollout, number: int) -> Rollout:
    """So many of its answers, again from the first where there are fewer, each to a prompt of its own."""
    answers = [place % len(rollout) for place in range(number)]
    groups = [answer // rollout.group_size for answer in answers]
    return _with_drawn_rewards(
        Rollout(
            step=rollout.step, seed=rollout.seed, group_size=1, rows=rollout.rows[groups],
            prompt_ids=[rollout.prompt_ids[group] for group in groups],
            completion_ids=[rollout.completion_ids[answer] for answer in answers],
            log_probs=[rollout.log_probs[answer] for answer in answers],
            is_complete=rollout.is_complete[answers], prompts=[rollout.prompts[group] for group in groups],
            completions=[rollout.completions[answer] for answer in answers],
        )
    )  # fmt: skip
