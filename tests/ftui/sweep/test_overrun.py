"""What a sweep may spend beyond its budget: what was on its way when it was spent, one rung of one trial per place."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.profile.serialize import to_toml
from ftui.sweep.controller import Controller, ladder_of
from ftui.sweep.sweep_files import SweepEnded, SweepState, Trial, TrialAsked, TrialPromoted, TrialReached, fold
from tests.support.played_sweep import make_sweep

PRICE = 3.6  # dollars an hour: a tenth of a cent a second


@dataclass
class PlayedTime:
    """Trials that take their time, each at its own pace, and come to values by chance; some fail on their way."""

    controller: Controller
    draw: random.Random
    now: float = 0.0
    longest: float = 0.0

    def play(self) -> SweepState:
        """Until the sweep has ended; the sweep's own code decides, told of each trial as it comes to its rung."""
        state = SweepState()
        ends: dict[int, tuple[float, float]] = {}  # when a trial on its way is there, and the seconds of that way
        paces = [self.draw.uniform(0.1, 10.0) for _ in range(40)]
        while True:
            while (record := self.controller.decide(state)) is not None:
                state = fold(state, record)
                if isinstance(record, SweepEnded):
                    assert not ends
                    return state
                assert isinstance(record, TrialAsked | TrialPromoted)
                trial = state.trials[record.trial]
                seconds = paces[trial.number] * (self._step(trial) - max(trial.steps.values(), default=0))
                ends[trial.number] = (self.now + seconds, seconds)
                self.longest = max(self.longest, seconds)
            number = min(ends, key=lambda one: ends[one][0])
            self.now, seconds = ends.pop(number)
            state = fold(state, self._reached(state.trials[number], seconds))

    def _step(self, trial: Trial) -> int:
        assert trial.target is not None
        return self.controller.plan.rungs[trial.target]

    def _reached(self, trial: Trial, seconds: float) -> TrialReached:
        assert trial.target is not None
        has_failed = self.draw.random() < 0.1
        return TrialReached(
            trial=trial.number, rung=trial.target, step=self._step(trial), seconds=trial.seconds + seconds,
            value=None if has_failed else self.draw.random(), ended="diverged" if has_failed else "",
        )  # fmt: skip


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    files = make_sweep(tmp_path_factory.mktemp("runs"))
    overrides = ["hardware.device=cpu", f"hardware.price_per_hour={PRICE}"]
    files.profile.write_text(to_toml(resolve(find_profile("quickstart"), overrides=overrides).profile))
    return Controller(files)


@given(
    seed=st.integers(0, 1 << 30), seconds=st.floats(10.0, 6000.0), in_money=st.booleans(),
    method=st.fixed_dictionaries({
        "scheduler": st.sampled_from(["asha", "hyperband"]), "eta": st.integers(2, 3), "finish": st.integers(1, 3),
        "parallel": st.integers(1, 4), "repeat_top": st.integers(1, 2), "seeds": st.integers(1, 3),
    }),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_budget_is_passed_by_no_more_than_what_was_on_its_way(
    controller: Controller, seed: int, seconds: float, in_money: bool, method: dict[str, Any]
) -> None:
    """8 trials of 90 steps at 0.1 to 10 s take some 3,600 seconds."""
    hours = seconds / 3600
    plan = replace(controller.plan, **method, hours=None if in_money else hours)
    controller.plan = replace(plan, money=hours * PRICE if in_money else None)
    controller.ladder = ladder_of(controller.plan, greater_is_better=False)
    played = PlayedTime(controller, random.Random(seed))
    state = played.play()
    assert state.seconds < seconds + method["parallel"] * played.longest
    event(state.ended.partition(" of ")[0])
