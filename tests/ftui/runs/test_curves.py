"""Curves: whatever the order of looks, restarts and stored files, they are those of the whole file."""

import math
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.runs import curves
from ftui.runs.curves import CurveReader, Curves, Series, write_curves
from ftui.runs.events import Step
from ftui.runs.journal import encode
from ftui.runs.run_folder import Run
from tests.support.events import make_step
from tests.support.examples import examples
from tests.support.replayed import read_curves


def add(run: Run, *records: Step) -> None:
    with run.metrics.open("ab") as file:
        file.writelines(encode(record) for record in records)


def losses(found: Curves) -> list[tuple[int, int, float | None, float | None]]:
    series = [attempt.series["loss"] for attempt in found.attempts]
    return [row for s in series for row in zip(s.first, s.last, s.low, s.high, strict=True)]


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    return made


def test_every_quantity_has_its_curve(run: Run) -> None:
    add(run, make_step(1, 2.0, memory=512, extras={"reward": 1.5, "loss": 9.0}), make_step(2, 1.0, memory=1024))
    (attempt,) = read_curves(run).attempts
    assert (attempt.attempt, attempt.start_step, attempt.last_step) == (1, 0, 2)
    assert set(attempt.series) == {"loss", "learning_rate", "grad_norm", "tokens_per_second", "memory", "reward"}
    assert attempt.series["loss"].low == [2.0, 1.0]
    assert attempt.series["memory"].high == [512, 1024]
    assert attempt.series["reward"].first == [1]


def test_no_number_is_never_nought(run: Run) -> None:
    add(run, make_step(1, math.nan), make_step(2, math.inf), make_step(3, None))
    series = read_curves(run).attempts[0].series["loss"]
    assert (series.low, series.high, series.count, series.missing) == ([None] * 3, [None] * 3, [0] * 3, [1] * 3)
    assert series.means() == [None] * 3


@given(st.lists(st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=3000))
@settings(max_examples=examples(30))
def test_buckets_tell_the_extremes_of_exactly_their_steps(values: list[float | None]) -> None:
    series = Series()
    for number, value in enumerate(values, 1):
        series.add(number, value)
    assert len(series.first) <= curves.BUCKETS
    assert series.first[0] == 1 and series.last[-1] == len(values)
    assert [last + 1 for last in series.last[:-1]] == series.first[1:]
    for index, (first, last) in enumerate(zip(series.first, series.last, strict=True)):
        covered = [value for value in values[first - 1 : last] if value is not None]
        assert series.low[index] == min(covered, default=None)
        assert series.high[index] == max(covered, default=None)
        assert (series.count[index], series.count[index] + series.missing[index]) == (len(covered), last - first + 1)
        assert series.total[index] == pytest.approx(sum(covered), rel=1e-6, abs=1e-3)


def test_a_resume_drops_exactly_what_came_after_its_first_step(run: Run) -> None:
    add(run, *(make_step(n, float(n)) for n in range(1, 2001)))
    assert len(read_curves(run).attempts[0].series["loss"].first) == 500
    add(run, *(make_step(n, -float(n), attempt=2) for n in range(1002, 1101)))
    found = read_curves(run)
    assert [(a.attempt, a.start_step, a.last_step) for a in found.attempts] == [(1, 0, 1001), (2, 1001, 1100)]
    assert losses(found)[-100][:2] == (1001, 1001)
    assert max(high for *_, high in losses(found) if high is not None) == 1001
    assert min(low for _, _, low, _ in losses(found) if low is not None) == -1100


def test_the_journal_may_tell_of_an_attempt_before_its_first_step(run: Run) -> None:
    add(run, *(make_step(n, float(n)) for n in range(1, 2001)))
    assert losses(read_curves(run, attempt=2, start_step=1001))[-1][1] == 1001
    assert losses(read_curves(run, attempt=2, start_step=0)) == []
    assert losses(read_curves(run, attempt=1, start_step=0)) == losses(read_curves(run))


def test_what_a_replaced_writer_adds_is_not_taken(run: Run) -> None:
    add(
        run,
        make_step(1, 1.0, token="a"),
        make_step(2, 9.0, token="b"),
        make_step(2, 2.0, token="a"),
        make_step(2, 9.0, token="a"),
    )
    add(run, make_step(3, 3.0, attempt=2), make_step(4, 9.0, attempt=1, token="a"))
    assert [low for *_, low, _ in losses(read_curves(run))] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"v":99}', b'{"offset":99999999}', b"\xff", b"[]"])
def test_curves_that_cannot_be_used_are_made_again(run: Run, damage: bytes) -> None:
    add(run, make_step(1, 1.0))
    run.curves.write_bytes(damage)
    assert losses(read_curves(run)) == [(1, 1, 1.0, 1.0)]


def test_stored_curves_are_caught_up_from_where_they_stand(run: Run) -> None:
    add(run, make_step(1, 1.0))
    reader = CurveReader(run)
    assert [reader.advance(), reader.advance(), reader.has_changed] == [True, False, True]
    write_curves(run, reader)
    assert not reader.has_changed
    covered = run.metrics.stat().st_size
    add(run, make_step(2, 2.0))
    run.metrics.write_bytes(b"\n" * covered + run.metrics.read_bytes()[covered:])  # what they cover is not read again
    assert [low for *_, low, _ in losses(read_curves(run))] == [1.0, 2.0]


def test_a_run_without_steps(run: Run) -> None:
    assert read_curves(run) == Curves()


@st.composite
def histories(draw: Any) -> list[Step]:
    """The steps of a few attempts, each from some step its predecessors had reached."""
    records: list[Step] = []
    reached = 0
    for attempt in range(1, draw(st.integers(1, 5)) + 1):
        start = draw(st.integers(0, reached))
        reached = start + draw(st.integers(0, 40))
        for number in range(start + 1, reached + 1):
            records.append(make_step(number, draw(st.none() | st.floats(-9, 9)), attempt=attempt))
    return records


@pytest.mark.slow
@given(histories(), st.randoms())
@settings(max_examples=examples(60))
def test_however_the_looks_fall_the_curves_are_those_of_the_whole_file(records: list[Step], chance: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "BUCKETS", 8)
        patch.setattr(curves, "PIECE", 2000)
        run = Run(Path(folder))
        reader = CurveReader(run)
        for index, record in enumerate(records):
            if chance.random() < 0.2 and (index == 0 or records[index - 1].attempt < record.attempt):
                reader.begin(record.attempt, record.step - 1)  # as the journal would tell
            add(run, record)
            if chance.random() < 0.3:
                while reader.advance():
                    continue
            if chance.random() < 0.1 and not reader.advance():
                write_curves(run, reader)
                reader = CurveReader(run)
        while reader.advance():
            continue
        rebuilt = CurveReader(run, afresh=True)
        while rebuilt.advance():
            continue
        assert reader.curves == rebuilt.curves
        assert msgspec.json.decode(msgspec.json.encode(reader.curves), type=Curves) == reader.curves
        _check_against(records, reader.curves)


def _check_against(records: list[Step], found: Curves) -> None:
    """The curves hold the line of history and nothing else: each attempt up to where a later one began."""
    line: dict[int, Step] = {}
    for record in records:
        line = {number: kept for number, kept in line.items() if number < record.step}
        line[record.step] = record
    covered: list[int] = []
    for low_step, high_step, low, high in losses(found):
        values = [line[n].loss for n in range(low_step, high_step + 1) if n in line]
        numbers = [value for value in values if value is not None]
        assert (low, high) == (min(numbers, default=None), max(numbers, default=None))
        covered += range(low_step, high_step + 1)
    assert covered == sorted(line)
