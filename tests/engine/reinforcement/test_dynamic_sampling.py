"""Groups without spread are left out, others take their place; a run that does so and is killed is the same run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.engine.reinforcement.dynamic_sampling import choose_groups, count_needed
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout_files import read_rollout
from ftui.engine.training.step import StepRunner
from ftui.profile.schema import Profile
from ftui.runs.events import RunStarted, Step
from ftui.runs.records.rollout_records import AnswersGenerated, RolloutMade
from ftui.runs.run_folder import Run
from tests.engine.reinforcement.test_rollout_runs import die, facts, grpo, rollout_bytes
from tests.support.attempts import Killed, attempt, killed_attempt, records
from tests.support.tiny import write_rows

NUM_ROWS, SIZE = 20, 2


class OddJudge:
    """Rewards the share of a letter where the prompt's number can be divided by four; all others get 1."""

    fingerprint = "odd"

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def score(self, prompts: Any, completions: Any, completion_ids: Any, columns: Any) -> RewardTable:
        numbers = [int(number) for number in columns["answer"]]
        self.asked.append(numbers)
        shares = [text.count("e") / max(1, len(text)) + 0.01 * len(text) for text in completions]
        values = [share if number % 4 == 0 else 1.0 for number, share in zip(numbers, shares, strict=True)]
        return RewardTable(["odd"], np.array(values)[:, None], np.ones(1))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> OddJudge:
    made = OddJudge()

    @contextmanager
    def open_rewards(*_: Any) -> Iterator[OddJudge]:
        yield made

    monkeypatch.setattr("ftui.engine.reinforcement.start.open_run_rewards", open_rewards)
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    asked = [{"prompt": f"count {n} of the ", "answer": str(n)} for n in range(NUM_ROWS)]
    return write_rows(tmp_path / "rows.jsonl", asked)


def dynamic(model: Path, rows: Path, /, **keys: Any) -> Profile:
    train = {"max_steps": 4, "train_sampling_strategy": "sequential"}
    return grpo(model, rows, train=train, grpo={"dynamic_sample": True} | keys, checkpoint={"save_steps": 1})


def expected_draws(size: int, most_times: int, num_rollouts: int) -> list[tuple[list[int], list[int]]]:
    """Of each rollout the prompts that are sampled, and those that are kept: told from the prompts alone."""
    found, place = [], 0
    for _ in range(num_rollouts):
        drawn = [(place + n) % NUM_ROWS for n in range(size)]
        for _ in range(most_times):
            good = [n for n in drawn if n % 4 == 0]
            if len(good) >= size:
                break
            more = min(size, -(-(size - len(good)) * len(drawn) // len(good))) if good else size
            drawn += [(place + len(drawn) + n) % NUM_ROWS for n in range(more)]
        good = [n for n in drawn if n % 4 == 0]
        kept = good[:size] + [n for n in drawn if n % 4][: max(0, size - len(good))]
        found.append((drawn, sorted(kept, key=drawn.index)))
        place += len(drawn)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("most_times", [2, 9])
def test_groups_without_spread_are_left_out(
    most_times: int, model_folder: Path, rows: Path, tmp_path: Path, judge: OddJudge
) -> None:
    run = Run(tmp_path / "run")
    assert attempt(run, dynamic(model_folder, rows, max_resample_times=most_times)) == 0
    expected, made, steps = expected_draws(SIZE, most_times, 4), records(run, RolloutMade), records(run, Step)
    asked = iter(judge.asked)
    for record, step, (drawn, kept) in zip(made, steps, expected, strict=True):
        calls: list[int] = []
        while len(calls) < len(drawn):
            calls += next(asked)[::4]
        assert calls == drawn
        rollout = read_rollout(run.rollouts, record.number, record.hash)
        assert rollout.rows.tolist() == kept and record.num_left_out == len(drawn) - len(kept)
        assert record.num_answers == 4 * len(drawn) and record.reward == step.extras["reward"]
        assert step.extras["num_groups_left_out"] == record.num_left_out
        assert step.extras["frac_reward_zero_std"] == pytest.approx(np.mean([n % 4 > 0 for n in drawn]))
    drawn_so_far = np.cumsum([len(drawn) for drawn, _ in expected])
    assert [step.epoch for step in steps] == pytest.approx(drawn_so_far / NUM_ROWS)
    assert records(run, RunStarted)[0].steps_per_epoch == 0


@pytest.mark.slow
def test_a_run_that_was_killed_draws_the_same_prompts(
    model_folder: Path, rows: Path, tmp_path: Path, judge: OddJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two steps of a rollout, and as its second lot of prompts is judged: no answer is made again."""
    profile = dynamic(model_folder, rows, steps_per_generation=2)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 1, monkeypatch)
    score, calls = judge.score, iter([True, False])
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(judge, "score", lambda *answers: score(*answers) if next(calls) else die())
        attempt(cut, profile, 2)
    generated = [record for record in records(cut, AnswersGenerated) if record.attempt == 2]
    assert len({record.number for record in generated}) == 1 and len(generated) == 2
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(StepRunner, "run", die)
        attempt(cut, profile, 3)
    again = [record for record in records(cut, AnswersGenerated) if record.attempt == 3]
    assert all(record.num_answers > generated[-1].num_answers for record in again), "only what lacked is generated"
    assert attempt(cut, profile, 4) == 0
    assert facts(cut) == facts(whole) and rollout_bytes(cut) == rollout_bytes(whole)
    epochs = [{step.step: step.epoch for step in records(run, Step)} for run in (whole, cut)]
    assert epochs[0] == epochs[1]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 20))
def test_groups_are_chosen_in_the_order_in_which_they_were_drawn(useful: list[bool], size: int) -> None:
    size = min(size, len(useful))
    flags = np.array(useful)
    chosen = list(choose_groups(flags, size))
    assert len(set(chosen)) == size and chosen == sorted(chosen)
    assert flags[chosen].sum() == min(size, flags.sum()), "none is left out that is of use"
    assert [n for n in chosen if useful[n]] == np.flatnonzero(flags)[:size].tolist()[: flags[chosen].sum()]


@given(st.integers(1, 30), st.integers(0, 29), st.integers(0, 60))
def test_as_many_are_drawn_as_the_share_of_useful_ones_asks_for(size: int, good: int, others: int) -> None:
    good = min(good, size - 1)
    others = max(others, size - good)  # as many as a rollout has were drawn first
    flags = np.array([True] * good + [False] * others)
    needed = count_needed(flags, size)
    assert 1 <= needed <= size
    if good and needed < size:
        assert needed * good / len(flags) >= size - good > (needed - 1) * good / len(flags)
