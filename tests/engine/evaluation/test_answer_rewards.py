"""Held-out prompts are answered and scored while a run learns from rewards: what that gives, what it does not move."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ftui.engine.evaluation.answer_rewards import RewardMeasures
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.system.train_state import TrainState
from ftui.engine.training.evaluate import note_evaluation
from ftui.measures import leading_measure
from ftui.profile.schema import Profile
from ftui.runs.describe import evaluation_words
from ftui.runs.events import EvaluationDone, RunFinished, Step
from ftui.runs.run_folder import Run
from ftui.runs.state import Evaluation
from ftui.runs.status import read_status
from tests.engine.reinforcement.test_rollout_runs import LetterCounter, die, facts, grpo
from tests.engine.reinforcement.test_rollout_runs import judge as judge
from tests.engine.reinforcement.test_rollout_runs import rows as rows
from tests.support.attempts import Killed, attempt, records
from tests.support.tiny import write_rows

HELD_OUT = 5


def evaluated(model: Path, rows: Path, tmp_path: Path, /, **eval: Any) -> Profile:
    asked = [{"prompt": f"what of {n}? ", "answer": f"held-out {n}"} for n in range(HELD_OUT)]
    path = write_rows(tmp_path / "held_out.jsonl", asked)
    return grpo(
        model, rows, data={"eval": str(path)}, train={"max_steps": 3}, checkpoint={"save_steps": 1},
        eval={"eval_strategy": "steps", "eval_steps": 1} | eval,
    )  # fmt: skip


def rewards_in(run: Run, step: int) -> list[float]:
    """What the answers of an evaluation should have got, from their texts alone."""
    lines = [json.loads(line) for line in (run.evaluations / f"step-{step}.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4, 5]
    found = [line["answer"].count("e") / max(1, len(line["answer"])) for line in lines]
    assert [line["scores"]["reward"] for line in lines] == pytest.approx(found)
    return found


@pytest.mark.slow
def test_an_evaluation_answers_each_prompt_once_and_moves_nothing(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that evaluates takes the same steps as one that does not; one killed in it evaluates again, whole."""
    profile, run, plain = evaluated(model_folder, rows, tmp_path), Run(tmp_path / "run"), Run(tmp_path / "plain")
    score = judge.score

    def deadly(prompts: Any, completions: Any, ids: Any, columns: Any) -> Any:
        is_second = columns["answer"][0] == "held-out 0" and len(records(run, EvaluationDone)) == 2
        return die() if is_second else score(prompts, completions, ids, columns)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(judge, "score", deadly)
        attempt(run, profile)
    assert attempt(run, profile, 2) == 0
    assert attempt(plain, grpo(model_folder, rows, train={"max_steps": 3})) == 0
    assert facts(run) == facts(plain)
    done = records(run, EvaluationDone)
    assert [one.step for one in done] == [0, 1, 2, 3] and all(one.loss is None for one in done)
    for one in done:
        assert one.extras["reward"] == pytest.approx(np.mean(rewards_in(run, one.step)))
        assert one.extras["rewards/letters/mean"] == one.extras["reward"] and "reward_std" not in one.extras
    asked = [call for call in judge.calls if str(call["columns"]["answer"][0]).startswith("held-out")]
    assert all(call["columns"]["answer"] == [f"held-out {n}" for n in range(HELD_OUT)] for call in asked)
    state, best = read_status(run).state, max(done[1:], key=lambda one: (one.extras["reward"], -one.step))
    assert state.best_evaluation is not None and state.best_evaluation.step == best.step
    (finished,) = records(run, RunFinished)
    assert finished.step_final == best.step, "final/ has the weights of the greatest reward"


@pytest.mark.slow
def test_early_stopping_by_reward(model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter) -> None:
    """And answers sampled by the same numbers: a model that learns nothing has the same reward each time."""
    profile = evaluated(model_folder, rows, tmp_path, early_stopping_patience=1)
    sections = {"num_generations_eval": 3, "num_generations": 4, "max_completion_length": 12}
    profile = profile.model_copy(
        update={
            "grpo": profile.grpo.model_copy(update=sections),
            "train": profile.train.model_copy(update={"learning_rate": 0.0, "max_steps": 9}),
        }
    )
    run = Run(tmp_path / "run")
    assert attempt(run, profile) == 0
    done = records(run, EvaluationDone)
    assert len({one.extras["reward"] for one in done}) == 1 and [one.best for one in done] == [False, True, False]
    assert (done[0].extras["reward_std"] or 0) > 0 and len(records(run, Step)) == 2


@pytest.mark.slow
def test_an_answer_that_is_missing_costs_no_patience(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RewardMeasures, "measure", lambda self, step: {})
    run = Run(tmp_path / "run")
    assert attempt(run, evaluated(model_folder, rows, tmp_path, early_stopping_patience=1)) == 0
    assert len(records(run, Step)) == 3 and read_status(run).state.last_evaluation is None


def test_the_greatest_reward_is_the_best(tmp_path: Path) -> None:
    section, state = grpo(tmp_path, tmp_path / "rows.jsonl").resolved_eval, TrainState()
    assert section.metric_for_best_model == "reward" and section.greater_counts
    found: list[Any] = []
    for step, reward in enumerate([0.9, 0.2, 0.4, 0.3, None]):
        state.step = step
        found.append(note_evaluation(state, None, {"reward": reward}, section))
    assert found == [False, True, True, False, False], "step 0 is what the others are compared with"
    assert (state.best_step, state.best_metric, state.best_loss, state.bad_evaluations) == (2, 0.4, None, 1)
    assert state.last_is_finite, "no loss was measured"
    assert not note_evaluation(state, None, {}, section) and state.bad_evaluations == 1, "and none without memory"


def test_an_evaluation_is_told_by_its_reward_where_it_has_no_loss() -> None:
    rewarded, plain = Evaluation(3, None, extras={"reward": 0.25}), Evaluation(3, 1.5, extras={"perplexity": 4.5})
    assert leading_measure(rewarded) == ("reward", 0.25) and leading_measure(plain) == ("loss", 1.5)
    assert (evaluation_words(rewarded), evaluation_words(plain)) == ("reward 0.25", "loss 1.5000")
    bad = Evaluation(3, None)
    assert bad.is_bad and not rewarded.is_bad and evaluation_words(bad) == "loss not finite"


class FailingScoring:
    """A judge of whom a function fails in the first `times` calls."""

    fingerprint = "failing"

    def __init__(self, times: int) -> None:
        self.judge, self.times, self.num_calls = self, times, 0

    def score(self, *_: Any) -> RewardTable:
        self.num_calls += 1
        has_failed = self.num_calls <= self.times
        values = np.array([[np.nan if has_failed else 3.0, 1.0]])
        return RewardTable(["fails", "works"], values, np.ones(2), {"fails": "broken"} if has_failed else {})


class OneAnswer(RewardMeasures):
    """Measures one answer that is there already."""

    def __post_init__(self) -> None:
        self._asked, self._times = [], 1

    def _answer(self) -> list[Any]:
        return []

    def _as_rollout(self, step: int, answers: Any) -> Rollout:
        return Rollout(
            step=step, seed=0, group_size=1, rows=np.zeros(1, int), prompt_ids=[np.zeros(1, np.int32)],
            completion_ids=[np.zeros(1, np.int32)], log_probs=[np.zeros(1, np.float32)],
            is_complete=np.ones(1, bool), prompts=["p"], completions=["c"],
        )  # fmt: skip

    def _write_down(self, *_: Any) -> None:
        pass


def one_answer(profile: Profile, scoring: Any, warnings: list[str] | None = None) -> OneAnswer:
    events: Any = SimpleNamespace(warn=([] if warnings is None else warnings).append)
    nothing: Any = None
    return OneAnswer(nothing, profile, nothing, nothing, scoring, events)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_reward_without_one_of_its_functions_is_not_told(tmp_path: Path, times: int) -> None:
    """It is asked once more; the sum of the others would be on another scale, and might become the best."""
    warnings: list[str] = []
    scoring = FailingScoring(times)
    found = one_answer(grpo(tmp_path, tmp_path / "rows.jsonl"), scoring, warnings).measure(3)
    assert scoring.num_calls == min(times, 1) + 1
    if times < 2:
        assert found["reward"] == 4.0 and not warnings
    else:
        assert found == {} and warnings == ["the reward of the answers is not told at step 3: fails failed twice"]


def test_what_gives_values_on_another_scale_has_another_fingerprint(tmp_path: Path) -> None:
    sections: list[dict[str, Any]] = [
        {}, {"grpo": {"num_generations_eval": 2}}, {"grpo": {"num_generations_eval": 2, "temperature": 0.5}},
        {"grpo": {"max_completion_length": 13}},
    ]  # fmt: skip
    asked: dict[str, Any] = {"data": {"eval": "held_out.jsonl"}}
    profiles = [grpo(tmp_path, tmp_path / "rows.jsonl", **asked, **keys) for keys in sections]
    prints = [one_answer(profile, FailingScoring(0)).fingerprint for profile in profiles]
    other = FailingScoring(0)
    other.fingerprint = "other functions"
    assert len({*prints, one_answer(profiles[0], other).fingerprint}) == 5
    later = grpo(tmp_path, tmp_path / "rows.jsonl", **asked, train={"learning_rate": 1.0})
    assert one_answer(later, FailingScoring(0)).fingerprint == prints[0]
