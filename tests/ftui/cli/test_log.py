"""`ftui log`: the course of a run in lines, of any length, and what its engine printed."""

import re
import threading
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.cli import log
from ftui.cli.log import course_lines, output_lines
from ftui.cli.main import main
from ftui.runs.events import (
    CheckpointSaved,
    ControlApplied,
    ControlRefused,
    PhaseChanged,
    RankSeconds,
    RunFailed,
    RunFinished,
    RunStopped,
)
from ftui.runs.records.record import Record
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted
from ftui.runs.run_folder import Run
from ftui.system.process_id import Identity
from ftui.text import cells
from tests.support.events import make_evaluation, make_run_opened, make_run_started, make_step

NOON = 1_795_953_600.0  # somewhere


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run(make_run: Any, append: Any, dead: Identity) -> Run:
    """A run of 40 steps, one a second, with an attempt that has ended."""
    made: Run = make_run("mine", created=NOON)
    append(made.supervisor_log, EngineStarted(identity=dead, time=NOON), attempt=1)
    return made


def at(seconds: float, record: Record) -> Record:
    return msgspec.structs.replace(record, time=NOON + seconds)


def steps(numbers: range, **fields: Any) -> list[Record]:
    return [
        at(n, make_step(n, loss=2.0, learning_rate=1e-4, grad_norm=0.5, tokens_per_second=900.0, **fields))
        for n in numbers
    ]


def printed(run: Run, num_lines: int | None = None) -> list[str]:
    return list(chain(*course_lines(run, num_lines, follow=False)))


def without_clock(lines: list[str]) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines]


def test_the_course_of_a_healthy_run(run: Run, append: Any) -> None:
    append(run.metrics, *steps(range(1, 41), num_tokens=100), attempt=1)
    append(
        run.journal,
        at(0, make_run_opened(host="pod", device="cuda: A100")),
        at(0, PhaseChanged(phase="preparing", detail="reading the rows")),
        at(0.1, PhaseChanged(phase="preparing", detail="half of the rows")),
        at(0.2, make_run_started(max_steps=40, num_tokens_ahead=4000)),
        at(10.5, PhaseChanged(phase="evaluating")),
        at(10.6, make_evaluation(10, 1.75, best=True)),
        at(10.7, PhaseChanged(phase="training")),
        at(20.5, CheckpointSaved(step=20, path="checkpoints/checkpoint-20", tags=[], num_bytes=1 << 30, seconds=2.0)),
        at(25.5, ControlApplied(request="r", verb="set", step=25, settings={"learning_rate_factor": 0.5})),
        at(26.5, ControlRefused(request="r", verb="evaluate", step=26, reason="there are no rows")),
        at(27.5, PhaseChanged(phase="held")),
        at(27.6, PhaseChanged(phase="training")),
        at(41, RunFinished(step=40, reason="all 40 steps are done", final="final")),
        attempt=1,
    )
    day, *lines = printed(run)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert all(cells(line) <= 80 for line in lines if " step " in line and "ETA" in line)
    lines = [line for line in without_clock(lines) if not line.startswith((" ", "base"))]
    assert [line for line in lines if "parameters" not in line] == [
        "on pod: cuda: A100",
        "preparing · reading the rows",
        "step 10/40 loss 2.0000 lr 1.00e-04 grad 0.5000 900 tok/s ETA 30 s",
        "evaluation at step 10: loss 1.7500 (best so far)",
        "step 20/40 loss 2.0000 lr 1.00e-04 grad 0.5000 900 tok/s ETA 20 s",
        "checkpoint at step 20 saved (1.0 GiB in 2.0 s)",
        "set at step 25: learning_rate_factor = 0.5",
        "evaluate refused at step 26: there are no rows",
        "paused",
        "step 30/40 loss 2.0000 lr 1.00e-04 grad 0.5000 900 tok/s ETA 10.0 s",
        "step 40/40 loss 2.0000 lr 1.00e-04 grad 0.5000 900 tok/s",
        "finished at step 40/40: all 40 steps are done",
    ]


def test_steps_of_several_ranks_name_the_slowest(run: Run, append: Any) -> None:
    ranks = RankSeconds([1.0, 1.5], [0.0, 0.0], [0.5, 0.0])
    append(run.metrics, *steps(range(9, 12), ranks=ranks), attempt=1)
    lines = without_clock(printed(run))
    assert [line.strip() for line in lines if "rank" in line] == ["rank 1 slowest (+50%), 17% in communication"]


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([RunStopped(step=8, reason="`ftui stop`", exit_code=10)], "stopped at step 8/40: `ftui stop`"),
        ([RunStopped(step=8, reason="`ftui park`", exit_code=11)], "parked at step 8/40: `ftui park`"),
        (
            [RunFailed(message="no\nroom", hint="buy", exit_code=40, error="")],
            "parked: no|           room|           buy",
        ),
        (
            [RunFailed(message="no\nroom", hint="buy", exit_code=31, error="")],
            "failed: no|           room|           buy",
        ),
        ([RunFinished(step=8, reason="no\x1b[2J", final="final")], "finished at step 8/40: no\u241b[2J"),
    ],
)
def test_an_attempt_ends_in_the_engines_words(run: Run, append: Any, records: list[Record], line: str) -> None:
    append(run.metrics, *steps(range(1, 9)), attempt=1)
    append(run.journal, at(0, make_run_started(max_steps=40)), *(at(9, record) for record in records), attempt=1)
    ended = EngineEnded(code=40, signal=None, oom_kills=None, last_lines=["Traceback"])
    append(run.supervisor_log, at(9.5, ended), attempt=1)  # which has nothing to add
    lines = without_clock(printed(run))
    assert sum(line.startswith(("failed", "parked", "stopped", "finished")) for line in lines) == 1
    assert [text for text in lines if not text.startswith("`ftui log")][-line.count("|") - 1 :] == line.split("|")


def test_an_engine_that_was_killed_ends_in_its_supervisors_words(run: Run, append: Any) -> None:
    append(run.journal, at(0, make_run_started(max_steps=40)), attempt=1)
    ended = EngineEnded(code=None, signal="SIGKILL", oom_kills=None, last_lines=["Traceback"])
    append(run.supervisor_log, at(1, ended), attempt=1)
    lines = without_clock(printed(run))
    assert "failed: The engine was killed (SIGKILL)." in lines
    assert lines[-1] == "`ftui log mine --output` prints what its engine printed."


@pytest.mark.parametrize(
    ("profile", "due"),
    [
        (None, [10, 20, 30, 40]),
        ("[log]\nlogging_steps = 16\n", [16, 32, 40]),
        ("[log]\nlogging_steps = 1\n", list(range(1, 41))),
        ("[log]\nlogging_steps = 'x'\n", [10, 20, 30, 40]),
        ("log = 3", [10, 20, 30, 40]),
        ("\x00", [10, 20, 30, 40]),
    ],
)
def test_steps_are_printed_as_often_as_the_profile_says(run: Run, append: Any, profile: str | None, due: Any) -> None:
    if profile is not None:
        run.profile.write_text(profile)
    append(run.journal, at(0, make_run_started(max_steps=40)), attempt=1)
    append(run.metrics, *steps(range(1, 41)), attempt=1)
    assert [int(n) for n in re.findall(r"step (\d+)/40 ", "\n".join(printed(run)))] == due


@pytest.mark.parametrize(("number", "kept"), [("1", 1), ("3", 3), ("40", 40), ("all", 42), ("100", 42)])
def test_the_last_lines(run: Run, append: Any, number: str, kept: int, capsys: pytest.CaptureFixture[str]) -> None:
    run.profile.write_text("[log]\nlogging_steps = 1\n")
    append(run.metrics, *steps(range(1, 42)), attempt=1)
    append(run.journal, at(42, RunFinished(step=41, reason="done", final="final")), attempt=1)
    whole = printed(run)[1:]
    assert main(["log", "mine", "-n", number]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-kept:] == whole[-kept:]
    assert ("-n all" in output.err) == (number not in ("all", "100"))


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
def test_a_number_of_lines_that_is_none(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "mine", f"-n{number}" if number else "-n="]) == 2
    assert "-n" in capsys.readouterr().err


def test_of_a_long_run_only_the_end_is_read(run: Run, append: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append(run.journal, at(0, make_run_started(max_steps=4000, num_tokens_ahead=400_000)), attempt=1)
    append(run.metrics, *steps(range(1, 2001), num_tokens=100), attempt=1)
    whole = printed(run)
    monkeypatch.setattr(log, "LEAST_BYTES", 100 << 10)
    monkeypatch.setattr(log, "STEP_BYTES", 1)
    number, end = [], printed(run, 5)
    for line in end:
        number += [int(n) for n in re.findall(r"step (\d+)/4000 ", line)]
    assert 0 < len(number) < 60 and number[-1] == 2000
    assert end[-5:] == whole[-5:] and "ETA 33m" in end[-3]


def test_following_prints_what_is_new_until_the_end(run: Run, append: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftui.system.process_id import this_process

    append(run.supervisor_log, EngineStarted(identity=this_process(), time=NOON), attempt=2)
    append(run.journal, at(0, make_run_started(max_steps=40)), attempt=2)
    append(run.metrics, *steps(range(1, 11)), attempt=2)
    later = [
        lambda: append(run.metrics, *steps(range(11, 41)), attempt=2),
        lambda: append(run.journal, at(41, RunFinished(step=40, reason="done", final="final")), attempt=2),
    ]
    monkeypatch.setattr(time, "sleep", lambda seconds: later.pop(0)())
    monkeypatch.setattr(log, "is_running", lambda status: bool(later))
    pieces = course_lines(run, 1, follow=True)
    assert "step 10/40" in list(chain(*iter(lambda: next(pieces), [])))[-1]
    rest = without_clock(list(chain(*pieces)))
    assert [line[:10] for line in rest] == ["step 20/40", "step 30/40", "step 40/40"] + ["finished a"] * (len(rest) - 3)


def test_a_run_that_has_done_nothing(make_run: Any) -> None:
    run = make_run("new")
    assert printed(run) == ["new has done nothing yet."]


def test_what_is_unreadable_is_told(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    run.journal.symlink_to(tmp_path / "elsewhere")
    assert main(["log", "mine"]) == 40 and "is a link" in capsys.readouterr().err


@pytest.fixture
def running(make_run: Any, append: Any, living: Identity) -> Run:
    made: Run = make_run("mine")
    append(made.supervisor_log, EngineStarted(identity=living), attempt=1)
    return made


def test_the_log_is_safe_to_print(running: Run, capsys: pytest.CaptureFixture[str]) -> None:
    running.engine_log.write_bytes(b"one\x1b[2J\r\n\xff two\nlast")
    assert main(["log", "mine", "--output"]) == 0
    assert capsys.readouterr().out == "one\u241b[2J\u240d\n\\xff two\nlast\n"


def test_a_run_without_a_log(running: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "mine", "--output"]) == 0
    assert "no engine.log yet" in capsys.readouterr().err


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_following_a_log_ends_with_the_run(
    running: Run, append: Any, dead: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOOK_SECONDS", 0.01)
    running.engine_log.write_bytes(b"one\ntw")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(chain.from_iterable(output_lines(running, follow=True))))
    thread.start()
    wait_for(lambda: seen == ["one"])
    with running.engine_log.open("ab") as file:
        file.write(b"o\nthree")
    append(running.supervisor_log, EngineStarted(identity=dead), attempt=2)
    append(running.journal, PhaseChanged(phase="loading"), attempt=2)
    thread.join(60)
    assert seen == ["one", "two", "three"]


def test_a_log_that_was_begun_anew_is_printed_whole(running: Run) -> None:
    running.engine_log_before.write_bytes(b"one\ntw")
    running.engine_log.write_bytes(b"o\nthree\n")
    assert list(chain(*output_lines(running, follow=False))) == ["one", "two", "three"]


def test_following_goes_over_to_the_new_log_and_loses_no_line(
    running: Run, append: Any, dead: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LOOK_SECONDS", 0.01)
    running.engine_log.write_bytes(b"0\n")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(chain.from_iterable(output_lines(running, follow=True))))
    thread.start()
    for number in range(1, 40):
        with running.engine_log.open("ab") as file:
            file.write(b"%d\n" % number)
        if number % 8 == 0:
            running.engine_log.rename(running.engine_log_before)
            running.engine_log.write_bytes(b"")
            wait_for(lambda so_far=number + 1: len(seen) == so_far)  # type: ignore[misc]
    append(running.supervisor_log, EngineStarted(identity=dead), attempt=2)
    thread.join(60)
    assert seen == [str(number) for number in range(40)]
