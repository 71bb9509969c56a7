"""The budget of a run: warned of once, parked in time, whatever saves and steps take."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.engine.runtime.budget_watch import BudgetWatch, find_price
from ftui.engine.runtime.control_flags import Control, Shutdown
from ftui.engine.runtime.event_writer import EventWriter
from ftui.errors import ProfileError
from ftui.profile.schema import BudgetSection, Profile
from ftui.runs.events import Warned
from ftui.runs.journal import Tail
from ftui.runs.records.spending import BudgetUsed, Spent
from ftui.runs.run_folder import Run

A_DOLLAR_A_SECOND = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def used(run: Run) -> list[BudgetUsed]:
    return [record for record in Tail(run.journal).read() if isinstance(record, BudgetUsed)]


def test_a_budget_of_25_dollars_is_warned_of_once_and_parks_the_run(run: Run) -> None:
    clock, events = Clock(), EventWriter(run, attempt=2, token="t")
    events.save_seconds = 1.0
    limits = BudgetSection(max_money=25.0)
    watch = BudgetWatch(limits, A_DOLLAR_A_SECOND, Spent(10.0, 10.0), [], events, clock)
    control = Control()
    control.budget = watch
    for now in (5.0, 10.0, 10.5):  # $15, $20, $20.50
        clock.now = now
        control.poll()
    (warning,) = used(run)
    assert not warning.parks and warning.spent == pytest.approx(20.0)
    assert "$20.00 of budget.max_money = $25.00 are spent (80%)" in warning.message
    clock.now = 10.9
    control.poll()  # a tenth of a second more than two saves and the spare are left
    clock.now = 11.0
    with pytest.raises(Shutdown, match="park") as shutdown:
        control.poll()
    assert shutdown.value.reason == used(run)[-1].message and used(run)[-1].parks
    assert used(run)[-1].reserve_seconds == pytest.approx(2 * 1.0 + 2.0)
    clock.now = 30.0
    control.poll()  # who leaves the run looks again, and is not told twice
    assert len(used(run)) == 2


def test_hours_of_all_attempts_count_and_what_was_warned_of_is_not_again(run: Run) -> None:
    clock, events = Clock(), EventWriter(run, attempt=3, token="t")
    limits = BudgetSection(max_hours=1.0)
    watch = BudgetWatch(limits, None, Spent(3000.0, None), [("max_hours", 1.0)], events, clock)
    clock.now = 500.0
    assert watch.look() == "" and used(run) == []
    clock.now = 599.0
    assert "59m 59s of budget.max_hours = 1h 00m are spent (99%)" in watch.look()
    raised = BudgetWatch(BudgetSection(max_hours=1.2), None, Spent(3600.0, None), [("max_hours", 1.0)], events, clock)
    assert raised.look() == "" and not used(run)[-1].parks, "another limit is warned of anew"


def test_without_a_budget_nothing_is_written(run: Run) -> None:
    watch = BudgetWatch(BudgetSection(), A_DOLLAR_A_SECOND, Spent(1e9, 1e9), [], EventWriter(run, attempt=1, token="t"))
    assert watch.look() == "" and used(run) == []


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6), st.floats(0.01, 2.0), st.integers(1, 4),
    st.floats(10.0, 60.0),
)  # fmt: skip
def test_the_overrun_is_less_than_the_save_that_parks_it(
    tmp_path_factory: pytest.TempPathFactory, saves: list[float], micro: float, per_step: int, budget: float
) -> None:
    """Steps of micro-batches, each looked at, a save after each step that takes up to twice as long as the last one."""
    clock = Clock()
    events = EventWriter(Run(tmp_path_factory.mktemp("run")), attempt=1, token="t")
    limits = BudgetSection(max_money=budget)
    watch = BudgetWatch(limits, A_DOLLAR_A_SECOND, Spent(0.0, 0.0), [], events, clock)
    events.save_seconds, last, number = saves[0], saves[0], 0
    reason = ""
    while not reason:
        for _ in range(per_step):
            clock.now += micro
            if reason := watch.look():
                break
        else:
            number += 1
            events.step_seconds = per_step * micro
            last = events.save_seconds = min(saves[number % len(saves)], 2 * last)
            clock.now += last
    final = 2 * last
    assert clock.now + final - budget <= final


def a_profile(**tables: dict[str, Any]) -> Profile:
    return Profile.model_validate(
        {"run": {"stage": "sft"}, "model": {"name_or_path": "base"}, "data": {"train": "rows.jsonl"}} | tables
    )


def test_a_budget_in_money_needs_a_price(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    events = EventWriter(run, attempt=1, token="t")
    paid = {"budget": {"max_money": 25.0}}
    with pytest.raises(ProfileError, match="what an hour of EPYC costs is not known") as error:
        find_price(a_profile(**paid), "cpu: EPYC", 1, events)
    assert "hardware.price_per_hour" in error.value.hint
    price = find_price(a_profile(**paid, hardware={"price_per_hour": 0.5}), "cpu: EPYC", 2, events)
    assert price == (1.0, "hardware.price_per_hour")
    price = find_price(a_profile(), "cuda: NVIDIA GeForce RTX 4090", 1, events)
    assert price is not None and price.basis == "ftui's table of prices"
    table = tmp_path / "ftui" / "prices.toml"
    table.parent.mkdir()
    table.write_text("rtx4090 = 0.7\n")
    assert find_price(a_profile(), "cuda: NVIDIA GeForce RTX 4090", 2, events) == (1.4, "your table of prices")
    table.write_text("rtx4090 = 'much'\n")
    with pytest.raises(ProfileError, match="dollars an hour"):
        find_price(a_profile(**paid), "cuda: NVIDIA GeForce RTX 4090", 1, events)
    assert find_price(a_profile(), "cuda: NVIDIA GeForce RTX 4090", 1, events) is None
    assert any(isinstance(record, Warned) for record in Tail(run.journal).read()), "training goes on, and it is said"
