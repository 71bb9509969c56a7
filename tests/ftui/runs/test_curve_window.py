"""A closer look at a part of a long run: exactly its steps, whatever attempts there were."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.runs.curve_window import read_window
from ftui.runs.curves import CurveReader, Curves
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, open_private
from ftui.system.segments import begin_anew, segments_before, total_bytes
from tests.support.events import make_step
from tests.support.examples import examples

TOKEN = "0123456789abcdef"


def line(step: int, attempt: int, loss: float | None) -> bytes:
    record = make_step(step, loss=loss, attempt=attempt, token=f"{attempt:016d}", time=float(step))
    return msgspec.json.encode(record) + b"\n"


def written(
    folder: Path, attempts: list[tuple[int, int]], damage: bytes = b"", *, segment: int = 0
) -> tuple[Run, dict[int, float]]:
    """A run whose attempts each took the steps after `start` up to `end`; returns it and the loss of each step.

    `segment`: the lines after which its file is begun anew.
    """
    run = Run(make_private_folder(folder))
    truth: dict[int, float] = {}
    pieces = []
    for number, (start, end) in enumerate(attempts, 1):
        truth = {step: loss for step, loss in truth.items() if step <= start}
        for step in range(start + 1, end + 1):
            truth[step] = step + number / 10
            pieces.append(line(step, number, truth[step]))
        pieces.append(damage)
    for first in range(0, len(pieces), segment or len(pieces)):
        with open(open_private(run.metrics, os.O_WRONLY | os.O_APPEND), "wb") as file:
            file.write(b"".join(pieces[first : first + (segment or len(pieces))]))
        if segment and first + segment < len(pieces):
            os.close(begin_anew(run.metrics, open_private(run.metrics, os.O_RDWR), keep=None))
    return run, truth


def curves_of(run: Run) -> Curves:
    reader = CurveReader(run, afresh=True)
    while reader.advance():
        continue
    return reader.curves


def values(curves: Curves | None) -> dict[int, float | None]:
    assert curves is not None
    return {
        step: mean
        for attempt in curves.attempts
        for step, mean in zip(attempt.series["loss"].first, attempt.series["loss"].means(), strict=True)
    }


LIVES = st.lists(st.integers(1, 60), min_size=1, max_size=5).flatmap(
    lambda lengths: st.tuples(st.just(lengths), st.lists(st.integers(0, 40), min_size=5, max_size=5))
)


@settings(max_examples=examples(60))
@given(LIVES, st.integers(1, 120), st.integers(0, 80), st.sampled_from([0, 0, 7, 40]))
def test_a_window_is_the_filtered_file(life: tuple[list[int], list[int]], first: int, width: int, segment: int) -> None:
    lengths, back = life
    attempts, end = [], 0
    for length, steps_back in zip(lengths, back, strict=False):
        start = max(0, end - steps_back)
        end = start + length
        attempts.append((start, end))
    with TemporaryDirectory() as folder:
        run, truth = written(Path(folder), attempts, damage=b"not json\n", segment=segment)
        found = values(read_window(run, curves_of(run), first, first + width, most_bytes=1 << 20))
    assert found == {step: loss for step, loss in truth.items() if first <= step <= first + width}


@pytest.mark.parametrize("segment, most_bytes", [(0, 1_200_000), (2500, 3_000_000)])  # two segments of fewer than six
def test_only_that_part_of_a_long_file_is_read(tmp_path: Path, segment: int, most_bytes: int) -> None:
    run, truth = written(tmp_path, [(0, 8000), (6000, 12_000)], segment=segment)
    curves = curves_of(run)
    found = values(read_window(run, curves, 5900, 6100, most_bytes=most_bytes))
    assert found == {step: truth[step] for step in range(5900, 6101)}


def test_a_window_that_is_too_much_to_read_is_refused(tmp_path: Path) -> None:
    run, _ = written(tmp_path, [(0, 5000)])
    assert read_window(run, curves_of(run), 1, 5000, most_bytes=10_000) is None
    run, _ = written(tmp_path / "segments", [(0, 5000)], segment=1000)
    assert read_window(run, curves_of(run), 1, 5000, most_bytes=10_000) is None


def test_the_outer_segments_count_too(tmp_path: Path) -> None:
    run, truth = written(tmp_path, [(0, 400)], segment=100)
    segment = segments_before(run.metrics, total_bytes(run.metrics))[1]
    longest = segment.end - segment.start
    assert read_window(run, curves_of(run), 120, 180, most_bytes=longest // 2) is None
    found = values(read_window(run, curves_of(run), 120, 180, most_bytes=longest + 100))
    assert found == {step: truth[step] for step in range(120, 181)}


def test_a_torn_last_line_waits(tmp_path: Path) -> None:
    run, truth = written(tmp_path, [(0, 50)])
    with run.metrics.open("ab") as file:
        file.write(line(51, 1, 1.0)[:-20])
    assert values(read_window(run, curves_of(run), 40, 60, most_bytes=1 << 20)) == {s: truth[s] for s in range(40, 51)}


def test_what_an_attempt_took_back_is_gone_before_its_first_step(tmp_path: Path) -> None:
    run, truth = written(tmp_path, [(0, 50)])
    reader = CurveReader(run, afresh=True)
    while reader.advance():
        continue
    reader.begin(2, 30)
    found = values(read_window(run, reader.curves, 20, 50, most_bytes=1 << 20))
    assert found == {step: truth[step] for step in range(20, 31)}


def test_a_run_without_steps_has_no_window(tmp_path: Path) -> None:
    assert read_window(Run(tmp_path), Curves(), 1, 10, most_bytes=1 << 20) is None


@pytest.mark.parametrize("loss", [None, 2.5])
def test_steps_without_a_number_stay_in_it(tmp_path: Path, loss: float | None) -> None:
    run = Run(tmp_path)
    run.metrics.write_bytes(line(1, 1, 1.0) + line(2, 1, loss))
    assert values(read_window(run, curves_of(run), 1, 2, most_bytes=1 << 20)) == {1: 1.0, 2: loss}


def test_another_measure_is_read_as_well(tmp_path: Path) -> None:
    run = Run(tmp_path)
    records = [
        make_step(step, attempt=1, token=TOKEN, extras={"kl": step / 8} if step != 7 else {}) for step in range(1, 20)
    ]
    run.metrics.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    found = read_window(run, curves_of(run), 5, 9, most_bytes=1 << 20, quantity="kl")
    assert found is not None
    series = found.attempts[0].series["kl"]
    assert dict(zip(series.first, series.means(), strict=True)) == {5: 5 / 8, 6: 6 / 8, 7: None, 8: 1.0, 9: 9 / 8}
