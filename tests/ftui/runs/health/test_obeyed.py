"""What rules suggest was obeyed in real runs (tests/bench/health/obey.py): the alarm is gone, and nothing got worse.

Sound runs that were recorded anyway are those of a faulty profile with the one change that is suggested.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from ftui.runs.health.health_rules import HealthFinding, Thresholds
from ftui.runs.health.rollout_rules import RolloutMonitor
from tests.bench.health.__main__ import RECORDED, recorded_course
from tests.bench.health.measure import MAX_GRAD_NORM, findings

OBEYED_RUNS, ROLLOUTS = RECORDED / "obeyed", RECORDED / "rollouts"
LENGTH = 0.01
"""train.max_grad_norm of the run `clipped`."""


def told(path: Path, rule: str, max_grad_norm: float = MAX_GRAD_NORM) -> list[HealthFinding]:
    """What that rule tells of a recorded run."""
    course = recorded_course(path)
    return [one for _, one in findings(course, Thresholds(), max_grad_norm=max_grad_norm) if one.rule == rule]


def evaluation_loss(path: Path) -> float:
    """That of the last evaluation."""
    return float(json.loads(path.read_text())["evaluations"][-1][1])


def figures(path: Path) -> dict[str, list[float]]:
    kept: dict[str, Any] = json.loads(path.read_text())
    return {name: values for name, values in kept.items() if name != "obeyed"}


def told_of_rollouts(path: Path, rule: str) -> list[tuple[int, HealthFinding]]:
    """The same of a run that learns from rewards, each with its step."""
    columns, monitor = figures(path), RolloutMonitor(Thresholds())
    course = [{name: values[index] for name, values in columns.items()} for index in range(len(columns["reward"]))]
    found = [(step, one) for step, row in enumerate(course, 1) for one in monitor.read(row)]
    return [(step, one) for step, one in found if one.rule == rule]


def newest(path: Path, name: str) -> float:
    """The mean of the last ten steps."""
    return fmean(figures(path)[name][-10:])


def test_a_lower_rate_ends_a_divergence() -> None:
    """A tenth of a rate thirty times too high is three times too high: what is suggested then makes it a sound one."""
    before, after, at_last = RECORDED / "rate-x30-1.json", OBEYED_RUNS / "divergence.json", "healthy-lora-1.json"
    assert "a tenth of train.learning_rate" in told(before, "divergence")[0].suggestion
    assert evaluation_loss(after) < evaluation_loss(before) - 2.0
    assert "learning_rate_factor=0.3" in told(after, "divergence")[0].suggestion
    assert not told(RECORDED / at_last, "divergence") and evaluation_loss(RECORDED / at_last) < evaluation_loss(after)


def test_a_higher_rate_ends_a_plateau() -> None:
    before, after = RECORDED / "rate-too-low-1.json", RECORDED / "healthy-constant.json"
    assert told(before, "plateau") and not told(after, "plateau")
    assert evaluation_loss(after) < evaluation_loss(before)


def test_the_length_that_is_suggested_clips_no_more_and_learns_as_well() -> None:
    before, after = OBEYED_RUNS / "clipped.json", RECORDED / "healthy-lora-1.json"
    (found, *_) = told(before, "clipping", LENGTH)
    assert f"train.max_grad_norm = {MAX_GRAD_NORM:g} " in found.suggestion and not told(after, "clipping")
    assert evaluation_loss(after) < evaluation_loss(before) + 0.02


def test_fewer_epochs_end_memorisation() -> None:
    before, after = RECORDED / "duplicated-1.json", OBEYED_RUNS / "memorisation.json"
    assert "Train fewer epochs" in told(before, "memorisation")[0].suggestion and not told(after, "memorisation")
    assert evaluation_loss(after) < evaluation_loss(before) - 1.0


REWARDS = {"groups-without-spread": "reward", "answers-truncated": "rewards/words/mean",
           "entropy-gone": "rewards/words/mean"}  # fmt: skip
"""What those runs are to learn; of the others the reward is what is fooled."""


@pytest.mark.parametrize(
    "name", ["groups-without-spread", "answers-truncated", "answers-truncated-overlong", "entropy-gone", "kl-budget"]
)
def test_what_is_suggested_for_answers_helps(name: str) -> None:
    after = OBEYED_RUNS / f"{name}.json"
    case = json.loads(after.read_text())["obeyed"]
    before = ROLLOUTS / f"{case['before']}.json"
    (step, found), *_ = told_of_rollouts(before, case["rule"])
    assert case["words"] in found.suggestion
    again = told_of_rollouts(after, case["rule"])
    if name in ("groups-without-spread", "answers-truncated"):  # learned by then; as long again as they may be
        assert again[0][0] > step + 10
    else:
        assert again == []
    if name in REWARDS:
        assert newest(after, REWARDS[name]) > newest(before, REWARDS[name])


def test_a_tenth_of_the_rate_keeps_answers_apart_too() -> None:
    before, after = ROLLOUTS / "hacked-at-odds.json", OBEYED_RUNS / "entropy-gone.json"
    (_, found), *_ = told_of_rollouts(before, "identical_answers")
    assert "a tenth of train.learning_rate" in found.suggestion and not told_of_rollouts(after, "identical_answers")
