"""Answers without any reward: a broken function where it is a whole rollout, and nothing where there are few."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ftui.engine.reinforcement.answered_prompts import AnsweredPrompts
from ftui.engine.reinforcement.asked_rows import AskedRow
from ftui.engine.reinforcement.scoring import AnswerScoring
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout import Rollout


class OddOnly:
    """Judges the answers to odd rows alone."""

    fingerprint = "odd"

    def score(self, prompts: Any, completions: Any, ids: Any, columns: dict[str, list[Any]]) -> RewardTable:
        values = [1.0 if number % 2 else np.nan for number in columns["number"]]
        return RewardTable(["odd"], np.array(values)[:, None], np.ones(1))


class Paused(Exception):
    pass


def prompts(numbers: list[int]) -> AnsweredPrompts:
    """Each row with one answer, which is there already."""

    def pause(reason: str) -> None:
        raise Paused(reason)

    number = len(numbers)
    answers = Rollout(
        step=0, seed=0, group_size=1, rows=np.array(numbers), prompt_ids=[np.zeros(1, np.int32)] * number,
        completion_ids=[np.zeros(1, np.int32)] * number, log_probs=[np.zeros(1, np.float32)] * number,
        is_complete=np.ones(number, bool), prompts=["p"] * number, completions=["c"] * number,
    )  # fmt: skip
    rows = [AskedRow(one, "p", {"number": one}) for one in numbers]
    events: Any = SimpleNamespace(within=lambda *_: nullcontext(), leave=lambda: None)
    control: Any = SimpleNamespace(pause=pause)
    nothing: Any = None
    asked: Any = rows
    scoring = AnswerScoring(OddOnly(), control, events)
    return AnsweredPrompts(0, "", nothing, asked, nothing, scoring, events, answers, nothing, lambda: 0.0)


def test_a_whole_rollout_without_a_reward_pauses_the_run() -> None:
    with pytest.raises(Paused, match="every function gave None"):
        prompts([2, 4]).answer([0, 1])


def test_few_further_answers_may_have_none() -> None:
    asked = prompts([1, 2, 4])
    for examples, expected in (([0, 1], [1.0, np.nan]), ([2], [np.nan])):
        rewards = asked.answer(examples).rewards
        assert rewards is not None and np.array_equal(rewards.totals, expected, equal_nan=True)
