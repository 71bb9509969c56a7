"""The second phase of a step on answers: whoever judges them gives their rewards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ftui.errors import RewardError

from ..rewards.reward_table import RewardTable
from ..rewards.score_answers import check_rewarded
from ..rollouts.rollout import Rollout
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from .asked_rows import AskedRow, as_columns
from .generating import texts_of


class AnswerJudge(Protocol):
    """What gives rewards (engine/rewards/)."""

    @property
    def fingerprint(self) -> str:
        """What stands for the functions: others, or others' weights, have another one."""
        ...

    def score(
        self, prompts: list[Any], completions: list[Any], completion_ids: list[list[int]], columns: dict[str, list[Any]]
    ) -> RewardTable:
        """Raises `RewardError`; the same answers can be given again."""
        ...


@dataclass(eq=False)
class AnswerScoring:
    """Has the answers of a rollout scored."""

    judge: AnswerJudge
    control: Control
    events: EventWriter

    def score(self, rollout: Rollout, asked: Sequence[AskedRow], *, needs_reward: bool = False) -> RewardTable:
        """The rewards; where a function is broken the run is paused, and tries again when somebody continues it; with
        `needs_reward` also where no answer has any.

        Raises:
            Shutdown: the run is to end, while a function is at work or broken.
        """
        return self.score_texts(*texts_to_score(rollout, asked), needs_reward=needs_reward)

    def score_texts(
        self,
        prompts: list[Any],
        completions: list[Any],
        ids: list[list[int]],
        columns: dict[str, list[Any]],
        *,
        needs_reward: bool = False,
    ) -> RewardTable:
        """The same of any answers, as functions get them."""
        while True:
            try:
                with self.events.within("scoring", f"{len(ids)} answers"):
                    table = self.judge.score(prompts, completions, ids, columns)
                    if needs_reward:
                        check_rewarded(table)
                    return table
            except RewardError as error:
                self.events.leave()
                self.control.pause(f"{error.message} {error.hint}")


def texts_to_score(
    rollout: Rollout, asked: Sequence[AskedRow]
) -> tuple[list[Any], list[Any], list[list[int]], dict[str, list[Any]]]:
    """The answers of a rollout as `AnswerJudge.score` takes them."""
    completions = texts_of(rollout, asked)
    ids = [one.tolist() for one in rollout.completion_ids]
    prompts = [row.prompt for row in asked for _ in range(rollout.group_size)]
    return prompts, completions, ids, as_columns(asked, rollout.group_size)
