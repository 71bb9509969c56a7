"""A moved end: the learning rate follows its plan, or falls to the new end from where it is; the answer says which."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from ftui.engine.optim.learning_rate import LearningRate
from ftui.engine.system.train_state import DECAY_END, Setting, TrainState
from ftui.profile.sections.train import TrainSection

PLANNED, PEAK = 864, 2e-4
KINDS: dict[str, dict[str, Any]] = {
    "cosine": {}, "linear": {}, "constant": {}, "constant_with_warmup": {}, "inverse_sqrt": {},
    "cosine_with_min_lr": {"min_lr_rate": 0.1}, "warmup_stable_decay": {"num_decay_steps": 80},
    "reduce_lr_on_plateau": {},
}  # fmt: skip


@dataclass(frozen=True)
class FakePlan:
    max_steps: int = PLANNED

    def peak_rate(self, step: int, otherwise: float) -> float:
        return otherwise


def rates(kind: str = "cosine", warmup: float = 26) -> LearningRate:
    kwargs = KINDS[kind] or None
    train = TrainSection.model_validate(
        {"learning_rate": PEAK, "lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs, "warmup_steps": warmup}
    )
    return LearningRate(train, FakePlan())  # type: ignore[arg-type]


def state_at(step: int, *decays: tuple[int, int]) -> TrainState:
    state = TrainState(step=step)
    for first, end in decays:
        state.change(Setting(first, DECAY_END, end))
    return state


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("first", "end"), [(51, 70), (40, 2000), (300, 300), (700, 864), (864, 900)])
def test_a_decay_begins_where_the_rate_is_and_ends_near_0(kind: str, first: int, end: int) -> None:
    """torch's own line between the two, by transformers."""
    rate, planned, fallen = rates(kind), state_at(first - 1), state_at(first - 1, (first, end))
    assert [rate.at(step, fallen) for step in range(1, first)] == [rate.at(step, planned) for step in range(1, first)]
    height, number = rate.at(first, planned), end - first + 1
    line = get_linear_schedule_with_warmup(torch.optim.SGD([torch.zeros(1)], lr=1.0), 0, number).lr_lambdas[0]
    steps = [first, (first + end) // 2, end]
    assert [rate.at(step, fallen) for step in steps] == pytest.approx([height * line(step - first) for step in steps])
    assert rate.at(end + 50, fallen) == rate.at(end, fallen)


@pytest.mark.parametrize("first", [1, 10, 26, 27])
def test_in_the_warm_up_the_rate_rises_to_its_peak_before_it_falls(first: int) -> None:
    rate, fallen = rates(), state_at(first - 1, (first, 70))
    heights = [rate.at(step, fallen) for step in range(1, 71)]
    assert heights == sorted(heights[:27]) + sorted(heights[27:], reverse=True)
    assert max(heights) == heights[26] == PEAK and heights[-1] == pytest.approx(PEAK / 44)


def test_a_later_decay_goes_on_from_the_earlier_one() -> None:
    """No step is higher than the one before, and both the factor and the plateau still count."""
    rate, state = rates(), state_at(100, (51, 150), (101, 300), (200, 220))
    heights = [rate.at(step, state) for step in range(51, 250)]
    assert heights == sorted(heights, reverse=True)
    assert heights[100 - 51] - heights[101 - 51] == pytest.approx(PEAK / 100, rel=0.02), "the first line's slope"
    state.change(Setting(101, "learning_rate_factor", 0.5))
    assert rate.at(210, state) == pytest.approx(heights[210 - 51] / 2)


@pytest.mark.parametrize(
    ("kind", "settings", "decays", "share", "advice"),
    [
        ("cosine", {"max_steps": 70}, [], "99 %", "not 0 % as planned"),
        ("linear", {"max_steps": 450}, [], "50 %", "not 0 % as planned"),
        ("cosine_with_min_lr", {"max_steps": 200}, [], "91 %", "not 10 % as planned"),
        ("warmup_stable_decay", {"max_steps": 700}, [], "100 %", "not 0 % as planned"),
        ("cosine", {"max_steps": 850}, [], "0 %", ""),
        ("constant", {"max_steps": 70}, [], "100 %", ""),
        ("reduce_lr_on_plateau", {"max_steps": 70}, [], "100 %", ""),
        ("cosine", {"max_steps": 1000}, [], "0 %", "as from step 864 on"),
        ("cosine_with_min_lr", {"max_steps": 1000}, [], "10 %", ""),
        ("cosine", {"max_steps": 70, DECAY_END: 70}, [], "5 %", ""),
        ("cosine", {"max_steps": 2000, DECAY_END: 2000}, [], "0 %", ""),
        ("cosine", {"max_steps": 500}, [(40, 70)], "3 %", "as from step 70 on"),
        ("cosine", {"max_steps": 60}, [(40, 70)], "35 %", "not 3 % as planned"),
    ],
)
def test_the_answer_says_where_the_rate_ends(
    kind: str, settings: dict[str, float], decays: list[tuple[int, int]], share: str, advice: str
) -> None:
    words, *ways = rates(kind).describe_end(settings, state_at(50, *decays), "mine")
    assert f", {share} of its peak" in words and words.endswith(advice or "peak")
    commands = [
        "`ftui set mine decay=linear`",
        f"`ftui resume mine --fork --set train.max_steps={settings['max_steps']}`",
    ]
    assert [way[: len(command)] for way, command in zip(ways, commands, strict=bool(advice))] == commands[: len(ways)]
    assert max(map(len, (words, *ways))) <= 78, "a line of a terminal"


def test_without_a_learning_rate_there_is_nothing_to_say() -> None:
    silent = LearningRate(TrainSection(learning_rate=0), FakePlan())  # type: ignore[arg-type]
    assert silent.describe_end({"max_steps": 70}, state_at(50), "mine") == []
