"""Alarms on made-up courses: each trouble by itself raises its own, and courses without trouble raise hardly any."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.runs.health.health_rules import OF_ROLLOUTS, HealthFinding, Thresholds
from ftui.runs.health.rollout_rules import WINDOW, Figures, RolloutMonitor

Course = Callable[[float], dict[str, float]]
"""What is special about a rollout, by the share of the run that has passed."""


def course(special: Course, seed: int = 0, number: int = 3 * WINDOW) -> list[Figures]:
    draw = random.Random(seed)
    rollouts: list[Figures] = []
    for place in range(number):
        passed = place / number
        values = {
            "reward": 0.3 + 0.4 * passed, "frac_reward_zero_std": 0.3, "completions/clipped_ratio": 0.05,
            "completions/mean_length": 100 + 50 * passed, "entropy": 1.5 - passed, "rewards/a/mean": 0.3 + 0.2 * passed,
            "rewards/b/mean": 0.5, "completions/identical_ratio": 0.2, "reference_reward": 0.9, "kl": 0.05,
        } | special(passed)  # fmt: skip
        rollouts.append({name: value * draw.gauss(1, 0.05) for name, value in values.items()})
    return rollouts


TROUBLES: dict[str, Course] = {
    "groups_without_spread": lambda passed: {"frac_reward_zero_std": 0.95},
    "answers_truncated": lambda passed: {"completions/clipped_ratio": passed},
    "length_without_reward": lambda passed: {"completions/mean_length": 100 * 3**passed, "reward": 0.5},
    "rewards_apart": lambda passed: {"rewards/b/mean": 0.6 - 0.4 * passed},
    "entropy_gone": lambda passed: {"entropy": 2.0 * 0.01**passed},
    "identical_answers": lambda passed: {"completions/identical_ratio": 0.99},
    "reward_above_reference": lambda passed: {"reference_reward": 0.35},
    "kl_budget": lambda passed: {"kl": 4 * passed},
}


PPO_TROUBLES: dict[str, Course] = {
    "groups_without_spread": lambda passed: {"rewards/a/std": 0.0},
    "answers_truncated": lambda passed: {"completions/clipped_ratio": passed},
    "length_without_reward": lambda passed: {"completions/mean_length": 100 * 3**passed, "reward": 0.5},
    "rewards_apart": lambda passed: {"rewards/b/mean": 0.6 - 0.4 * passed},
    "entropy_gone": lambda passed: {"entropy": 2.0 * 0.01**passed},
    "kl_budget": lambda passed: {"objective/kl": 500 * passed},
}


def course_of_ppo(special: Course, seed: int = 0) -> list[Figures]:
    """That of a run of stage ppo, which has one answer to each prompt and tells its distance by the answer."""
    own = {"objective/kl": 8.0, "objective/kl_coef": 0.05, "rewards/a/std": 0.2, "rewards/b/std": 0.0}
    others = ("frac_reward_zero_std", "completions/identical_ratio", "kl")
    figures = course(lambda passed: own | special(passed), seed)
    return [{name: value for name, value in one.items() if name not in others} for one in figures]


def find_alarms(rollouts: list[Figures]) -> list[HealthFinding]:
    """What is wrong at the end of a course."""
    monitor, found = RolloutMonitor(Thresholds()), list[HealthFinding]()
    for figures in rollouts:
        found = monitor.read(figures)
    return found


def test_each_rule_has_its_trouble() -> None:
    assert TROUBLES.keys() == OF_ROLLOUTS.keys()


@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize("seed", range(5))
def test_each_trouble_raises_its_alarm_alone(name: str, seed: int) -> None:
    alarms = find_alarms(course(TROUBLES[name], seed))
    assert [alarm.rule for alarm in alarms] == [name] and all(one.evidence and one.suggestion for one in alarms)


@pytest.mark.parametrize("name", PPO_TROUBLES)
def test_each_trouble_of_ppo_raises_its_alarm_with_its_keys(name: str) -> None:
    [alarm] = find_alarms(course_of_ppo(PPO_TROUBLES[name]))
    assert alarm.rule == name and alarm.evidence and "grpo" not in alarm.suggestion
    if name == "kl_budget":
        assert "nats a token" in alarm.evidence and "ppo.kl_coef" in alarm.suggestion


def test_a_course_that_learns_raises_none() -> None:
    for kind in (course, course_of_ppo):
        raised = [find_alarms(kind(lambda _: {}, seed)[:end]) for seed in range(10) for end in range(1, 3 * WINDOW, 5)]
        assert raised == [[]] * len(raised)


def test_nothing_is_said_before_there_is_something_to_tell() -> None:
    for trouble in TROUBLES.values():
        assert find_alarms(course(trouble)[: WINDOW - 1]) == []


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["reward", "entropy", "completions/mean_length", "rewards/a/mean", "rewards/b/mean"]),
            st.none() | st.floats(allow_nan=True),
        ),
        max_size=3 * WINDOW,
    )
)
def test_any_figures_can_be_looked_at(rollouts: list[Figures]) -> None:
    find_alarms(rollouts)


RECORDED = Path(__file__).parents[3] / "fixtures" / "health" / "rollouts"
TRUE_OF_SOUND_RUNS = {"groups_without_spread", "answers_truncated"}
"""What sound runs are told, and is so: they have learned their task, or their answers have become as long as may be."""


def told_of(path: Path) -> dict[str, int]:
    """The rules that find something in a recorded run, each with the first step."""
    columns, monitor, told = json.loads(path.read_text()), RolloutMonitor(Thresholds()), dict[str, int]()
    for index in range(len(columns["reward"])):
        for finding in monitor.read({name: values[index] for name, values in columns.items()}):
            told.setdefault(finding.rule, index + 1)
    return told


def test_real_runs_that_fool_their_reward_are_told_and_those_that_learn_are_not() -> None:
    told = {path.stem: told_of(path) for path in sorted(RECORDED.glob("*.json"))}
    sound = [rules for name, rules in told.items() if name.startswith("healthy")]
    fooled = [rules for name, rules in told.items() if name.startswith("hacked")]
    assert (len(sound), len(fooled)) == (12, 14), "two and four of them of stage ppo"
    assert [rules.keys() - TRUE_OF_SOUND_RUNS for rules in sound] == [set()] * 12
    assert all(fooled)
    assert {"rewards_apart", "kl_budget"} <= told["hacked-ppo-at-odds"].keys()
    assert "groups_without_spread" in told["hacked-ppo-constant"], "all answers of a step are rewarded alike"
    assert "kl_budget" in told["hacked-far-away"] and "reward_above_reference" in told["hacked-repeats"]
