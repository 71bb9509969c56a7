"""What attempts cost: spans made of records, in any order, and sums over them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.runs.events import PhaseChanged, RunOpened, RunStopped, Warned
from ftui.runs.records.spending import (
    AttemptSpan,
    BudgetUsed,
    Spending,
    Spent,
    basis_words,
    continue_command,
    meter_words,
    seconds_left,
    spent,
)
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted, Restarting
from ftui.runs.reduce import fold
from ftui.runs.state import RunState
from tests.support.events import ENGINE, make_run_opened


def opened(time: float, attempt: int, rate: float | None = 3600.0, **limits: float) -> RunOpened:
    price = {"dollars_per_hour": rate, "price_basis": "hardware.price_per_hour"}
    return make_run_opened(time=time, attempt=attempt, **price, **limits)


def ended(time: float, attempt: int) -> EngineEnded:
    return EngineEnded(code=None, signal="SIGKILL", oom_kills=0, last_lines=[], time=time, attempt=attempt)


def folded(*records: object) -> Spending:
    state = RunState()
    for record in records:
        state = fold(state, record)  # type: ignore[arg-type]
    return state.spending


def test_pauses_count_and_the_time_between_attempts_does_not() -> None:
    spending = folded(
        EngineStarted(identity=ENGINE, time=100.0, attempt=1),
        opened(105.0, 1),
        PhaseChanged(phase="held", time=110.0, attempt=1),
        RunStopped(step=3, reason="on request", exit_code=11, time=400.0, attempt=1),
        EngineStarted(identity=ENGINE, time=9000.0, attempt=2),
        opened(9003.0, 2),
        Warned(message="", time=9010.0, attempt=2),
    )
    assert spent(spending.spans) == pytest.approx((310.0, 310.0))
    assert meter_words(spending, spent(spending.spans)) == "$310.00"
    assert basis_words(spending) == "at $3,600.00 an hour (hardware.price_per_hour)"


def test_a_killed_attempt_lasted_until_it_was_last_seen() -> None:
    """Nothing is written while a run is paused: whoever starts it again says when it was seen last."""
    paused = (EngineStarted(identity=ENGINE, time=0.0, attempt=1), PhaseChanged(phase="held", time=10.0, attempt=1))
    again = EngineStarted(identity=ENGINE, time=5000.0, attempt=2, seen_before=500.0)
    assert spent(folded(*paused, again).spans).seconds == 500.0


def test_the_pause_before_a_restart_keeps_the_card_and_counts_while_there_is_a_supervisor() -> None:
    crash = (
        opened(0.0, 1), ended(50.0, 1),
        Restarting(step=2, error="e", number=1, pause_seconds=30.0, time=50.0, attempt=1),
    )  # fmt: skip
    spans = folded(*crash).spans
    assert [spent(spans, now).seconds for now in (None, 60.0, 900.0)] == [50.0, 60.0, 80.0]
    spans = folded(*crash, opened(78.0, 2), ended(90.0, 2)).spans
    assert spent(spans).seconds == 90.0
    assert spent(spans, before=2).seconds == 78.0


def test_an_attempt_that_never_knew_its_machine_costs_what_its_neighbour_does() -> None:
    early = (EngineStarted(identity=ENGINE, time=0.0, attempt=1), ended(10.0, 1))
    assert spent(folded(*early).spans) == Spent(10.0, None)
    spans = folded(*early, opened(20.0, 2, 3600.0), ended(30.0, 2), opened(40.0, 3, 7200.0), ended(50.0, 3)).spans
    assert spent(spans) == pytest.approx((30.0, 40.0))
    assert spent([*spans, AttemptSpan(4, 60.0, 61.0)]).dollars == pytest.approx(42.0)


def test_what_is_left_is_that_of_the_nearer_limit() -> None:
    spending = Spending(max_money=10.0, max_hours=1.0)
    assert seconds_left(spending, Spent(60.0, 1.0), 3600.0) == (9.0, "max_money")
    assert seconds_left(spending, Spent(3595.0, 1.0), 3600.0) == (5.0, "max_hours")
    assert seconds_left(spending, Spent(60.0, None), None) == (3540.0, "max_hours")
    assert seconds_left(Spending(), Spent(60.0, 1.0), 3600.0) is None


def test_a_reached_limit_says_how_to_go_on_until_the_next_attempt() -> None:
    money: dict[str, Any] = {"limit": "max_money", "allowed": 25.0, "message": "m", "attempt": 1}
    warned, parked = BudgetUsed(spent=20.0, **money), BudgetUsed(spent=24.0, parks=True, reserve_seconds=4.0, **money)
    reached = folded(opened(0.0, 1, max_money=25.0), warned, parked)
    assert continue_command("run", reached) == "ftui resume run --set budget.max_money=50"
    assert reached.warned == {"max_money": 25.0}
    assert meter_words(reached, Spent(1.0, 24.0)) == "$24.00 of $25.00"
    state = fold(RunState(spending=reached, attempt=1), opened(9.0, 2, max_money=50.0))
    assert continue_command("run", state.spending) is None and state.spending.max_money == 50.0


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 100)), max_size=8), st.floats(0, 1e6))
def test_the_sum_is_never_more_than_the_time_that_went_by(
    parts: list[tuple[float, float, float]], after: float
) -> None:
    clock, spans = 0.0, []
    for number, (gap, length, pause) in enumerate(parts, start=1):
        spans.append(AttemptSpan(number, clock + gap, clock + gap + length, 1.0, pause))
        clock += gap + length
    total = spent(spans, clock + after)
    assert sum(length for _, length, _ in parts) <= total.seconds + 1e-6
    assert total.seconds <= clock + after + 1e-6
