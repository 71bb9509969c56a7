"""Stillness from looks at a beat: pure, no process, no clock."""

from typing import Any

import pytest

from ftui.profile.sections.health import HealthSection
from ftui.runs.records.record import Phase
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.records.supervisor_records import Stalled
from ftui.runs.run_folder import Run
from ftui.supervisor import stall
from ftui.supervisor.settings import STALL_MINUTES, read_settings
from ftui.supervisor.stall import StallDetector, read_beat
from tests.support.events import make_beat


def stillness(floor: float | None = 5.0, patience: float = 1800.0) -> StallDetector:
    return StallDetector(floor, token="t", tick=1.0, patience=patience)


def at_a_pace(seconds: int, *, times: int = 6, phase: Phase = "training", **facts: Any) -> tuple[StallDetector, Beat]:
    """One that has seen the count move every so many seconds, and the last beat."""
    judge = stillness(**facts)
    last = make_beat(0, phase)
    for second in range(seconds * times + 1):
        last = make_beat(second // seconds, phase)
        assert judge.look(last, 1.0) is None
    return judge, last


def seconds_until_stalled(judge: StallDetector, last: Beat, *, most: int = 5000, **facts: Any) -> tuple[int, Stalled]:
    for second in range(1, most):
        if (found := judge.look(last, 1.0, **facts)) is not None:
            return second, found
    raise AssertionError("never")


@pytest.mark.parametrize(("pace", "limit"), [(1, 20.0), (3, 60.0), (60, 1200.0)])
def test_the_limit_is_twenty_times_the_usual_pace(pace: int, limit: float) -> None:
    judge, last = at_a_pace(pace)
    assert judge.limit("training") == limit
    second, found = seconds_until_stalled(judge, last)
    assert (second, found.seconds, found.limit_seconds, found.phase) == (limit + 1, limit + 1, limit, "training")


def test_the_floor_is_never_undercut() -> None:
    judge, _ = at_a_pace(1, floor=300.0)
    assert judge.limit("training") == 300.0


@pytest.mark.parametrize("phase", ["starting", "preparing", "loading", "saving"])
def test_where_no_pace_is_known_patience_is_long(phase: Phase) -> None:
    judge, _ = at_a_pace(1, phase=phase)
    assert judge.limit(phase) == 1800.0
    few, _ = at_a_pace(1, times=4)
    assert few.limit("training") == few.limit("evaluating") == 1800.0
    assert stillness(floor=7200.0).limit(phase) == 7200.0


@pytest.mark.parametrize(("floor", "phase"), [(None, "training"), (1.0, "held")])
def test_who_may_stand_still_for_good(floor: float | None, phase: Phase) -> None:
    judge = stillness(floor, patience=1.0)
    assert judge.limit(phase) is None
    assert all(judge.look(make_beat(1, phase), 1.0) is None for _ in range(10_000))


def test_time_asleep_does_not_count() -> None:
    judge, last = at_a_pace(1)
    for _ in range(9):
        assert judge.look(last, 3600.0) is None  # each counts as two ticks
    assert judge.look(last, 1.0) is None
    assert judge.look(last, 1.0) is None
    assert judge.look(last, 1.0) is not None


def test_a_stopped_engine_and_a_foreign_beat_do_not_count() -> None:
    judge, last = at_a_pace(1)
    assert all(judge.look(last, 1.0, stopped=True) is None for _ in range(100))
    assert all(judge.look(make_beat(6, token="old"), 1.0) is None for _ in range(100))
    assert all(judge.look(None, 1.0) is None for _ in range(100))
    assert seconds_until_stalled(judge, last)[0] == 21


def test_any_sign_of_work_begins_the_count_anew() -> None:
    judge, last = at_a_pace(1)
    assert all(judge.look(last, 1.0) is None for _ in range(19))
    assert judge.look(make_beat(7), 1.0) is None
    assert judge.look(make_beat(7, "evaluating"), 1.0) is None
    assert all(judge.look(make_beat(7, "evaluating"), 1.0) is None for _ in range(100))
    assert judge.limit("training") == 20.0  # the change of phase is no interval of either


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("[health]\nstall_minutes = 0.5\n", 30.0),
        ("[health]\nstall_minutes = 2\n", 120.0),
        ('[health]\nstall_minutes = "none"\n', None),
        ("[health]\n", 300.0),
        ('[health]\nstall_minutes = "x"\n', 300.0),
        ("health = 3", 300.0),
        ("", 300.0),
        ("[", 300.0),
        (None, 300.0),
    ],
)
def test_the_floor_comes_from_the_profile(make_run: Any, text: str | None, seconds: float | None) -> None:
    run: Run = make_run()
    if text is not None:
        run.profile.write_text(text)
    assert read_settings(run).stall_seconds == seconds


def test_the_defaults_are_those_of_the_profile() -> None:
    assert HealthSection.model_fields["stall_minutes"].default == STALL_MINUTES


def test_a_beat_that_cannot_be_read_is_none(make_run: Any) -> None:
    run: Run = make_run()
    assert read_beat(run) is None
    run.beat.write_bytes(b"\xff{")
    assert read_beat(run) is None
    run.beat.write_bytes(b'{"kind":"beat","v":1,"phase":"training","step":1,"micro_step":0,"progress":4}')
    found = read_beat(run)
    assert found is not None and found.progress == 4


def test_patience_is_half_an_hour() -> None:
    assert stall.PATIENCE_SECONDS == 1800
