"""Rollouts of a run: answers are generated, judged, written down and journaled, and only then trained on.

The state of a run names the rollout that its next step is on, by its hash; a checkpoint holds that. A run that resumes
between two steps of a rollout reads it again: the model that sampled it is gone. What was interrupted before that is
made again, and is the same; what the journal has already is not.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as changed
from safetensors.numpy import load, save

from ftui.profile.schema import Profile
from ftui.rollouts.kept_rollouts import remove_old_rollouts
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.run_folder import Run
from ftui.system.volume import disk_error

from ..distributed.process_group import ProcessGroup
from ..distributed.shared_work import Work, send_rollout
from ..models.model_parts import ModelParts
from ..planning.mixing import reuse_of
from ..planning.plan import Plan, Reuse
from ..rollouts.rollout import Rollout
from ..rollouts.rollout_files import decode_rollout, encode_rollout, read_rollout, remove_answers, write_rollout
from ..runtime.control_flags import Control
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.prepare import TrainingData
from .advantages import compute_advantages
from .answer_batches import AnswerBatches, LogProbs
from .answered_prompts import AnsweredPrompts
from .asked_rows import AskedRows
from .dynamic_sampling import sample_groups
from .generating import GENERATE, AnswerGeneration, count_tokens
from .made_rollouts import MadeRollouts, weights_mark
from .old_log_probs import OldLogProbs
from .ppo_rollouts import TokenLearning
from .scoring import AnswerScoring

BASELINES = {"grpo": "mean", "rloo": "leave_one_out"}


@dataclass(eq=False)
class RolloutShare:
    """What each rank does for a rollout: its part of the answers, its part of what is measured of them; and it has all
    of them to train on. Rank 0 does the rest: it has them scored, and writes."""

    profile: Profile
    data: TrainingData
    ranks: ProcessGroup
    reuse: Reuse
    generation: AnswerGeneration
    measured: OldLogProbs
    batches: AnswerBatches

    def sizes(self, number: int) -> list[int]:
        """The prompts of each step on other answers of rollout `number`."""
        if self.profile.draws_prompts:
            return [self.profile.rows_per_step] * self.reuse.num_steps
        first = number * self.reuse.length + 1
        return [len(self.data.plan.step(step)) for step in range(first, first + self.reuse.num_steps)]

    def begin(self, kind: int, number: int, details: bytes) -> Work:
        """This rank's part of what rank 0 has ordered."""
        if kind == GENERATE:
            return self.generation.answer_part(number, details)
        return self.measured.measure_part(self.batches)

    def give(self, number: int, rollout: Rollout, log_probs: LogProbs) -> None:
        """On rank 0: train on this rollout from now on, on all ranks."""
        if self.ranks.size > 1:
            of_tokens = {name: np.concatenate([np.zeros(0, np.float32), *each]) for name, each in log_probs.items()}
            lengths = {f"{name} lengths": np.array(list(map(len, each))) for name, each in log_probs.items()}
            send_rollout(self.ranks, number, [*encode_rollout(number, rollout), save(of_tokens | lengths)])
        self.batches.load(rollout, self.sizes(number), log_probs)

    def load(self, number: int, pieces: Sequence[bytes]) -> None:
        """On the others: what rank 0 has given."""
        *files, measured = pieces
        values = load(measured)
        names = [name for name in values if f"{name} lengths" in values]
        log_probs = {name: np.split(values[name], np.cumsum(values[f"{name} lengths"])[:-1]) for name in names}
        self.batches.load(decode_rollout(*files), self.sizes(number), log_probs)


@dataclass(eq=False)
class RolloutMaker:
    """Has the answers ready that a step trains on."""

    run: Run
    profile: Profile
    data: TrainingData
    parts: ModelParts
    state: TrainState
    scoring: AnswerScoring
    share: RolloutShare
    control: Control
    events: EventWriter
    disk_wait: DiskWait
    learning: TokenLearning | None = None
    """In stage ppo."""

    def __post_init__(self) -> None:
        self._reuse = reuse_of(self.profile)
        self._rows = AskedRows(self.data.train, self.data.sources)
        self._made = MadeRollouts(self.run)
        self._loaded = ""

    def prepare(self, step: int) -> None:
        """Have the answers of `step` (1-based), the next one, in `batches`.

        Raises:
            Shutdown: between two tokens, or while functions are at work or the run waits for one to be mended.
            DataError: it is on a rollout that was trained on before, and that is not there any more.
        """
        number, state = (step - 1) // self._reuse.length, self.state
        if state.rollout != number:  # its first step, or a fork with other values begins among its steps
            rollout, digest = self._obtain(number)
            state.rollout, state.rollout_hash = number, digest
            state.kl_coef, state.scores = rollout.kl_coef, list(rollout.scores)
            state.initial_kl_coef = self.profile.ppo.kl_coef if state.kl_coef is not None else None
            state.prompts_drawn = rollout.prompts_drawn
        elif self._loaded != state.rollout_hash:
            rollout = read_rollout(self.run.rollouts, number, state.rollout_hash)
        else:
            return
        self.share.give(number, rollout, rollout.tokens)
        if self.learning is None:
            log_probs = self.share.measured.obtain(
                number, state.rollout_hash, self.share.batches, len(rollout), may_measure=rollout.step == state.step
            )
            if log_probs:
                self.share.give(number, rollout, log_probs)
        self._loaded = state.rollout_hash

    def _obtain(self, number: int) -> tuple[Rollout, str]:
        """Rollout `number`, scored, written down and journaled, and its hash."""
        weights, rewards = weights_mark(self.parts.model), self.scoring.judge.fingerprint
        if found := self._made.find_scored(number, weights, rewards):
            rollout, record = found
            record = changed(record, generation_seconds=0.0, scoring_seconds=0.0)
        else:
            rollout, record = self._make(number, weights, rewards)
        self.events.write(record, durable=True)
        self._clear_away(number)
        return rollout, record.hash

    def _make(self, number: int, weights: str, rewards: str) -> tuple[Rollout, RolloutMade]:
        found = self._made.find_answers(number, weights)
        prompts = AnsweredPrompts(
            number, weights, self.data.train, self._rows, self.share.generation, self.scoring, self.events,
            None if found is None else found[0], keep=lambda answers: self._write(number, answers),
            clock=self._working_time,
        )  # fmt: skip
        sampled = self._sample(number, prompts)
        started = self._working_time()
        rollout = self._learn(number, sampled)
        figures, everything = rollout.figures, prompts.answers
        assert everything is not None and rollout.rewards is not None, "they are answered and scored"
        known = rollout.rewards.totals[~np.isnan(rollout.rewards.totals)]
        reward = float(known.mean()) if len(known) else None
        return rollout, RolloutMade(
            number=number, step=self.state.step, hash=self._write(number, rollout), weights=weights, rewards=rewards,
            num_answers=len(everything), num_tokens=count_tokens(everything), reward=figures.get("reward", reward),
            generation_seconds=prompts.generation_seconds, num_left_out=rollout.num_left_out,
            scoring_seconds=prompts.scoring_seconds + self._working_time() - started,
        )  # fmt: skip

    def _sample(self, number: int, prompts: AnsweredPrompts) -> Rollout:
        """The groups that a rollout has, scored."""
        plan = self.data.plan
        if not self.profile.draws_prompts:
            steps = range(1, self._reuse.num_steps + 1)
            rows = [row for part in steps for row in plan.step(number * self._reuse.length + part)]
            return prompts.answer([example for row in rows for example in row])
        assert isinstance(plan, Plan), "the stage has no curriculum"
        drawn = self.state.prompts_drawn
        if drawn is None:  # the first one, or one of a fork of a run that took each step's own
            drawn = self._reuse.fresh(number * self._reuse.length + 1) * self.profile.rows_per_step

        def answer(number_of: int) -> Rollout:
            rows = plan.stream(drawn + prompts.num_prompts, number_of)
            return prompts.answer([example for row in rows for example in row])

        groups = sample_groups(answer, sum(self.share.sizes(number)), self.profile.grpo.max_resample_times)
        return replace(groups, prompts_drawn=drawn + prompts.num_prompts)

    def _learn(self, number: int, rollout: Rollout) -> Rollout:
        """The scored rollout with its advantages."""
        assert rollout.rewards is not None, "it is scored"
        if self.learning is not None:
            self.share.give(number, rollout, {})
            with self.events.within("scoring", "values of the answers"):
                return self.learning.complete(number, rollout)
        section = self.profile.grpo
        groups = compute_advantages(
            rollout.rewards.totals, section.num_generations, scale=section.scale_rewards,
            baseline=BASELINES[section.adv_estimator],
        )  # fmt: skip
        return replace(rollout, advantages=groups.advantages.reshape(-1))

    def _clear_away(self, number: int) -> None:
        """Delete what rollout `number` was before it was scored, and rollouts that nothing needs any more."""
        checkpoints = [checkpoint.path for checkpoint in checkpoints_in(self.run.checkpoints)]
        try:
            remove_answers(self.run.rollouts, number)
            remove_old_rollouts(self.run.rollouts, self.profile.log.rollout_total_limit, checkpoints, number)
        except OSError as error:
            self.events.warn(f"old rollouts could not be deleted: {error}")

    def _working_time(self) -> float:
        """Seconds on a clock that stands still while the run is paused."""
        return time.perf_counter() - self.control.away_seconds

    def _write(self, number: int, rollout: Rollout) -> str:
        def write() -> str:
            try:
                return write_rollout(self.run.rollouts, number, rollout)
            except OSError as error:
                raise disk_error(error, f"rollout {number} could not be written", self.run.folder) from error

        return self.disk_wait.retry(write)
