"""The journal of a sweep: what it comes to, and that a torn line harms nothing."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftui.errors import UsageError
from ftui.sweep.sweep_files import SweepEnded, SweepFiles, TrialAsked, TrialPromoted, TrialReached, find_sweep


def test_what_a_journal_comes_to(make_sweep: Callable[..., SweepFiles]) -> None:
    files = make_sweep()
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"adapter.r": 8}, derived={"adapter.lora_alpha": 16}))
        pen.write(TrialAsked(trial=1, point={"adapter.r": 16}))
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.5, seconds=7.0))
        pen.write(TrialPromoted(trial=0, rung=1, attempts=1))
    state = files.read()
    assert state == pen.state
    first, second = state.trials
    assert first.values == {"adapter.r": 8, "adapter.lora_alpha": 16} and first.results == {0: 0.5}
    assert (first.target, first.attempts, second.target) == (1, 1, 0) and state.is_at_work and state.seconds == 7.0
    with files.changing() as pen:
        pen.write(SweepEnded(reason="all done"))
    assert not files.read().is_at_work


@given(cut=st.integers(0, 200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_torn_last_line_is_read_over_and_the_next_append_is_valid(
    make_sweep: Callable[..., SweepFiles], cut: int
) -> None:
    name = f"torn{cut}"
    files = SweepFiles(make_sweep(name=name).folder) if not find(name) else find_sweep(name)
    files.journal.write_bytes(b"")
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"adapter.r": 8}))
    whole = files.journal.read_bytes()
    with files.changing() as pen:
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.5, seconds=7.0))
    line = files.journal.read_bytes()[len(whole) :]
    files.journal.write_bytes(whole + line[: min(cut, len(line) - 1)])
    assert files.read().trials[0].results == {}
    with files.changing() as pen:
        pen.write(TrialReached(trial=0, rung=0, step=10, value=0.25, seconds=7.0))
    assert files.read().trials[0].results == {0: 0.25}
    assert files.journal.read_bytes().count(b"\n") == 2


def find(name: str) -> bool:
    try:
        return bool(find_sweep(name))
    except UsageError:
        return False


def test_a_sweep_that_is_not_there_is_named_with_those_that_are(make_sweep: Callable[..., SweepFiles]) -> None:
    make_sweep(name="rates")
    with pytest.raises(UsageError) as caught:
        find_sweep("rate")
    assert "Did you mean rates?" in caught.value.hint
