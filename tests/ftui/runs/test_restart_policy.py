"""When a run is started again by itself: every kind of ending, the count, and the second crash at the same place."""

from functools import reduce
from typing import Any

import pytest

from ftui.runs.events import AnyRecord, CheckpointSaved, CheckpointVerified, ControlApplied
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted, Restarting
from ftui.runs.reduce import fold
from ftui.runs.restart_policy import EXPLAINED, crash_step, decide, may_follow, row_before
from ftui.runs.state import Restart, RunState
from tests.support.events import (
    ENGINE,
    make_engine_ended,
    make_engine_started,
    make_run_failed,
    make_run_finished,
    make_run_stopped,
    make_step,
)


def ended(code: int | None = None, *, attempt: int = 1, **fields: Any) -> EngineEnded:
    return make_engine_ended(code, attempt=attempt, token=f"t{attempt}", **fields)


def begun(attempt: int = 1) -> EngineStarted:
    return make_engine_started(attempt, token=f"t{attempt}")


def verdict(*records: AnyRecord, end: EngineEnded, state: RunState | None = None, **facts: Any) -> Restarting | str:
    after = reduce(fold, [begun(end.attempt), *records, end], state or RunState())
    return decide(after, end, **({"terminated": False} | facts))


@pytest.mark.parametrize(
    "end",
    [
        ended(signal="SIGSEGV"),
        ended(signal="SIGKILL"),
        ended(signal="SIGKILL", oom_kills=1),
        ended(signal="SIGKILL", stalled=True),
        ended(code=1),
        ended(code=0),
        ended(code=70),
        ended(),
    ],
)
def test_crashes(end: EngineEnded) -> None:
    restart = verdict(end=end)
    assert isinstance(restart, Restarting)
    assert (restart.step, restart.number, restart.pause_seconds) == (0, 1, 1.0)
    assert restart.error
    assert not isinstance(verdict(end=end, terminated=True), Restarting)


@pytest.mark.parametrize("end", [ended(signal="SIGTERM"), ended(signal="SIGINT"), *map(ended, sorted(EXPLAINED))])
def test_endings_that_are_no_crash(end: EngineEnded) -> None:
    assert verdict(end=end) == "its ending is not a crash"


def test_what_counts_as_explained() -> None:
    assert sorted(EXPLAINED) == [2, 10, 11, 20, 21, 30, 31, 32, 33, 40, 43, 50]


@pytest.mark.parametrize(
    ("last_words", "again"),
    [
        (make_run_failed(70, error="e"), True),
        (make_run_failed(41, error="e"), False),
        (make_run_failed(41, error="e", again=True), True),
        (make_run_failed(31, error="e"), False),
        (make_run_failed(43, error="e"), False),
        (make_run_finished(), False),
        (make_run_stopped(10), False),
        (make_run_stopped(11), False),
        (make_run_stopped(20), False),
        (make_run_stopped(40), False),
    ],
)
def test_the_engines_own_word_decides(last_words: AnyRecord, again: bool) -> None:
    """Even where its process was killed afterwards."""
    assert isinstance(verdict(last_words, end=ended(signal="SIGKILL")), Restarting) is again
    state = reduce(fold, [begun(), last_words], RunState())
    assert may_follow(state) is again


@pytest.mark.parametrize("verb", ["stop", "park", "abort"])
def test_an_engine_that_was_asked_to_leave_stays_down(verb: str) -> None:
    asked = ControlApplied(request="x", verb=verb, step=3, attempt=1)
    assert not isinstance(verdict(asked, end=ended(signal="SIGSEGV")), Restarting)


def test_pauses_double_and_the_sixth_restart_is_not_made() -> None:
    state, pauses = RunState(), []
    for attempt in range(1, 6):
        end = ended(code=1, attempt=attempt)
        records: list[AnyRecord] = [begun(attempt), make_step(attempt, attempt=attempt), end]
        state = reduce(fold, records, state)
        restart = decide(state, end, terminated=False)
        assert isinstance(restart, Restarting) and restart.step == attempt
        pauses.append(restart.pause_seconds)
        state = fold(state, Restarting(**{**_fields(restart), "attempt": attempt}))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    last = ended(code=1, attempt=6)
    assert "5 restarts in a row" in str(verdict(make_step(6, attempt=6), end=last, state=state))
    verified = CheckpointVerified(step=6, attempt=6)
    again = verdict(make_step(6, attempt=6), verified, end=last, state=state)
    assert isinstance(again, Restarting) and again.number == 1
    same = verdict(make_step(3, attempt=6), verified, end=last, state=state)
    assert "second time at step 3" in str(same)


def _fields(record: Restarting) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("step", "error", "number", "pause_seconds")}


def test_another_error_at_the_same_step_is_another_crash() -> None:
    first: list[AnyRecord] = [
        begun(),
        make_step(3),
        ended(code=1),
        Restarting(step=3, error="exit code 1", number=1, pause_seconds=1),
    ]
    state = reduce(fold, first[:-1], RunState())
    state = fold(state, Restarting(step=3, error="exit code 1", number=1, pause_seconds=1, attempt=1))
    assert isinstance(verdict(make_step(3, attempt=2), end=ended(signal="SIGBUS", attempt=2), state=state), Restarting)
    assert "second time" in str(verdict(make_step(3, attempt=2), end=ended(code=1, attempt=2), state=state))


def test_who_starts_a_run_anew_starts_a_new_row() -> None:
    restarts = [Restart(1, 3, "e", 1), Restart(2, 4, "e", 2), Restart(4, 5, "e", 1)]
    assert row_before(restarts, 3) == restarts[:2]
    assert row_before(restarts, 4) == []
    assert row_before(restarts, 5) == restarts[2:]
    assert row_before([], 1) == []


def test_before_its_plan_an_attempt_stands_where_it_would_begin() -> None:
    saved = CheckpointSaved(step=5, path="checkpoints/checkpoint-5", tags=[], num_bytes=1, seconds=1.0, attempt=1)
    records: list[AnyRecord] = [begun(), make_step(7), saved, begun(2)]
    state = reduce(fold, records, RunState())
    assert crash_step(state) == 5
    assert crash_step(RunState(attempt=1)) == 0


def test_records_that_are_not_of_this_attempt_forbid_a_restart() -> None:
    end = ended(code=1)
    assert isinstance(decide(RunState(), end, terminated=False), str)
    other = reduce(fold, [begun(), EngineStarted(identity=ENGINE, attempt=1, token="other")], RunState())
    assert isinstance(decide(other, end, terminated=False), str)


def test_a_lost_node_is_waited_for_however_often_and_counts_as_no_restart() -> None:
    state, numbers = RunState(), []
    for attempt in range(1, 9):
        end = ended(code=75, attempt=attempt, lost_node="node 1 was not heard")
        records: list[AnyRecord] = [begun(attempt), make_step(3, attempt=attempt), end]
        state = reduce(fold, records, state)
        restart = decide(state, end, terminated=False)
        assert isinstance(restart, Restarting) and restart.pause_seconds == 0
        numbers.append(restart.number)
        state = fold(state, Restarting(**{**_fields(restart), "attempt": attempt}))
        assert state.phase == "starting" and "waiting for a node" in state.detail
    assert numbers == [0] * 8
    crash = verdict(make_step(3, attempt=9), end=ended(code=1, attempt=9), state=state)
    assert isinstance(crash, Restarting) and crash.number == 1
    away = ended(code=11, attempt=9, lost_node="node 1 is away for 30m 00s")
    state = fold(fold(state, begun(9)), away)
    assert (state.phase, state.exit_code) == ("parked", 11) and isinstance(decide(state, away, terminated=False), str)
