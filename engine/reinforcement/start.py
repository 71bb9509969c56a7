"""What a run that samples its answers has beside any other: where its steps come from, and what is before them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run

from ..distributed.process_group import ProcessGroup
from ..evaluation.answer_rewards import RewardMeasures
from ..models.model_parts import ModelParts
from ..planning.mixing import reuse_of
from ..rewards.run_rewards import open_run_rewards
from ..rewards.score_with_model import load_scorers
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.disk_wait import DiskWait
from ..runtime.event_writer import EventWriter
from ..system.train_state import TrainState
from ..training.evaluate import Evaluator
from ..training.generate import TextGenerator
from ..training.prefetch import Prefetcher, StepSource
from ..training.prepare import TrainingData
from .answer_batches import AnswerBatches
from .generating import AnswerGeneration
from .old_log_probs import OldLogProbs
from .ppo_rollouts import TokenLearning
from .reference_answers import measure_references
from .rollout_maker import RolloutMaker, RolloutShare
from .scoring import AnswerScoring


def step_source(
    profile: Profile, data: TrainingData, parts: ModelParts, ranks: ProcessGroup
) -> AbstractContextManager[StepSource]:
    """Where the micro-batches of a run come from."""
    if not profile.samples_answers:
        return Prefetcher(data, ranks, layout=parts.layout)
    masks, by_token = profile.sampled.mask_truncated_completions, profile.run.stage == "ppo"
    return nullcontext(
        AnswerBatches(reuse_of(profile), data.pad_id, ranks, parts.layout, masks_truncated=masks, by_token=by_token)
    )


def make_rollout_share(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    ranks: ProcessGroup,
    state: TrainState,
    source: StepSource,
    disk_wait: DiskWait,
    control: Control,
    events: EventWriter,
) -> RolloutShare | None:
    """This rank's share of rollouts; in other stages there are none."""
    if not isinstance(source, AnswerBatches):
        return None
    generator = TextGenerator(profile, data, parts, state, control, events)
    generation = AnswerGeneration(profile, data, parts, ranks, state, generator, control, events)
    measured = OldLogProbs(run, profile, parts, ranks, control, events, disk_wait)
    return RolloutShare(profile, data, ranks, reuse_of(profile), generation, measured, source)


@contextmanager
def rollouts_before_steps(
    run: Run,
    profile: Profile,
    data: TrainingData,
    parts: ModelParts,
    state: TrainState,
    share: RolloutShare | None,
    generator: TextGenerator,
    evaluator: Evaluator | None,
    disk_wait: DiskWait,
    control: Control,
    events: EventWriter,
) -> Iterator[Callable[[int], None]]:
    """On rank 0: a block with what is to be called before each step; without a share of rollouts it does nothing. In it
    `evaluator` measures rewards.

    Raises:
        RewardError, ModelError: a reward function or a reward model cannot be loaded.
    """
    if share is None:
        yield lambda step: None
        return

    def look_around() -> None:
        control.poll(RequestLevel.SAVE)
        events.progress()

    batches = share.batches
    learning = TokenLearning(profile.ppo, state, share.measured, batches) if profile.run.stage == "ppo" else None
    scorers = load_scorers(
        profile, parts.hardware, lambda detail: events.progress(detail=detail), events.warn, look_around
    )
    with open_run_rewards(run, profile.rewards, events.warn, scorers, look_around) as judge:
        scoring = AnswerScoring(judge, control, events)
        batches.reference_reward = measure_references(profile, data, scoring)
        if evaluator is not None:
            evaluator.answers = RewardMeasures(run, profile, data, generator, scoring, events)
            state.measure_by(evaluator.answers.fingerprint)  # a fork, or functions that were allowed, may have others
        maker = RolloutMaker(run, profile, data, parts, state, scoring, share, control, events, disk_wait, learning)
        yield maker.prepare
