"""What the screens know of a run: history, tails of files, orders and their fate. No Textual."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ftui.errors import UsageError
from ftui.runs.events import CheckpointSaved, ControlApplied, ControlRefused, PhaseChanged, Warned
from ftui.runs.journal import encode
from ftui.runs.records.push_records import PushBegan, PushFailed
from ftui.runs.records.record import Record
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.records.supervisor_records import EngineEnded
from ftui.runs.requests import Delete, Pause, Set
from ftui.runs.run_folder import Run
from ftui.system.files import open_private
from ftui.system.segments import begin_anew
from ftui.tui.state.history import EVENTS_KEPT, MARKS_KEPT, AttemptStart, History, tone_of
from ftui.tui.state.run_view import RunView
from ftui.tui.state.sent_requests import SentRequests
from ftui.tui.state.tails import FIRST_BYTES, LINES_KEPT, PIECE, LogTail, MachineTail
from tests.support.events import make_evaluation, make_run_started
from tests.tui.conftest import Recorded


def history_of(tmp_path: Path, *records: Record) -> History:
    run = Run(tmp_path)
    run.journal.write_bytes(b"".join(encode(record) for record in records))
    history = History(run)
    while history.look():
        continue
    return history


def test_progress_is_one_event_that_moves(tmp_path: Path) -> None:
    """What is told once a second before training begins takes one line; other news in between is kept."""
    doing = "the reference model on each row"
    history = history_of(
        tmp_path,
        PhaseChanged(phase="loading", detail="the model"),
        PhaseChanged(phase="preparing", detail=doing),
        *(PhaseChanged(phase="preparing", detail=f"{doing} · {n} % · {90 - n} s left") for n in range(1, 40)),
        Warned(message="the disk is slow"),
        PhaseChanged(phase="preparing", detail=f"{doing} · 41 % · 1 min left"),
        PhaseChanged(phase="preparing", detail=f"{doing} · 99 % · 0 s left"),
        PhaseChanged(phase="held", detail="no room"),
        PhaseChanged(phase="held", detail="no room"),
    )  # fmt: skip
    assert [event.text for event in history.events] == [
        "loading · the model",
        f"preparing · {doing} · 39 % · 51 s left",
        "warning: the disk is slow",
        f"preparing · {doing} · 99 % · 0 s left",
        "paused · no room",
        "paused · no room",
    ]


def test_a_push_is_among_the_events(tmp_path: Path) -> None:
    run = Run(tmp_path)
    records = (PushBegan(to="/x", what="final", seal=""), PushFailed(to="/x", what="final", message="no room"))
    run.pushes.write_bytes(b"".join(map(encode, records)))
    history = history_of(tmp_path)
    told = [(event.text, event.tone) for event in history.events]
    assert told == [("pushing final to /x", "text"), ("push to /x failed: no room", "bad")]


def test_history_is_one_line(tmp_path: Path) -> None:
    history = history_of(
        tmp_path, make_run_started(), make_evaluation(5, best=True), make_evaluation(9, best=True),
        make_run_started(7, attempt=2), make_evaluation(8), make_run_started(6, attempt=3),
    )  # fmt: skip
    assert [mark.step for mark in history.evaluations] == [5]
    assert history.attempt_starts == [AttemptStart(3, 6)], "attempt 2 began above attempt 3: its mark is gone"
    assert history.best is not None and history.best.step == 5


def test_an_extra_evaluation_is_a_mark_and_one_event(tmp_path: Path) -> None:
    answers = [ControlApplied(request="x", verb="evaluate", step=step, detail="loss 1.5000") for step in (5, 9)]
    history = history_of(
        tmp_path, make_run_started(), make_evaluation(5, 2.0), make_evaluation(5, 1.5, requested=True), answers[0],
        make_evaluation(9, 1.5, requested=True), answers[1],
    )  # fmt: skip
    marks = [(mark.step, mark.loss, mark.is_best) for mark in history.evaluations]
    assert marks == [(5, 2.0, False), (9, 1.5, False)]
    texts = [event.text for event in history.events if "evaluation" in event.text]
    assert texts == [
        "evaluation at step 5: loss 2.0000",
        *(f"extra evaluation at step {n}: loss 1.5000" for n in (5, 9)),
    ]


def test_marks_are_bounded_and_the_best_stays(tmp_path: Path) -> None:
    records = [make_evaluation(step, best=step == 11) for step in range(1, 3 * MARKS_KEPT)]
    history = history_of(tmp_path, make_run_started(), *records)
    assert len(history.evaluations) <= MARKS_KEPT + 1
    assert history.best is not None and history.best.step == 11


def test_events_are_bounded(tmp_path: Path) -> None:
    history = history_of(tmp_path, *(make_evaluation(step) for step in range(2 * EVENTS_KEPT)))
    assert len(history.events) == EVENTS_KEPT
    assert history.events[-1].text.startswith(f"evaluation at step {2 * EVENTS_KEPT - 1}")


def test_saving_and_evaluating_are_told_by_what_came_of_them(tmp_path: Path) -> None:
    saved = CheckpointSaved(step=3, path="checkpoints/checkpoint-3", tags=[], num_bytes=1, seconds=0.1)
    history = history_of(tmp_path, PhaseChanged(phase="saving"), saved, PhaseChanged(phase="held", detail="asked"))
    assert [event.text for event in history.events] == ["checkpoint at step 3 saved (1 B in 0.1 s)", "paused · asked"]


@pytest.mark.parametrize(("code", "tone"), [(0, "muted"), (10, "muted"), (11, "muted"), (70, "bad"), (None, "bad")])
def test_an_engine_that_left_as_it_was_to_is_no_alarm(code: int | None, tone: str) -> None:
    assert tone_of(EngineEnded(code=code, signal=None, oom_kills=None, last_lines=[])) == tone


def test_the_log_is_followed_over_its_rotation(tmp_path: Path) -> None:
    run = Run(tmp_path)
    log = LogTail(run)
    assert not log.look()
    run.engine_log.write_bytes(b"one\ntwo\nthr")
    assert log.look() and list(log.lines) == ["one", "two"]
    with run.engine_log.open("ab") as file:
        file.write(b"ee\n")
    assert log.look() and list(log.lines) == ["one", "two", "three"]
    run.engine_log.rename(run.engine_log_before)
    run.engine_log.write_bytes(b"four\n")
    assert log.look() and list(log.lines)[-1] == "four"
    assert not log.look()


def test_a_log_that_was_cut_is_read_from_its_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.engine_log.write_bytes(b"a long line\n")
    log = LogTail(run)
    log.look()
    with run.engine_log.open("r+b") as file:
        file.truncate()
        file.write(b"new\n")
    log.look()
    assert list(log.lines)[-1] == "new"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.engine_log.write_bytes(b"".join(b"line %d\n" % number for number in range(200_000)))
    log = LogTail(run)
    log.look()
    assert log._offset == run.engine_log.stat().st_size
    assert log.lines[-1] == "line 199999" and len(log.lines) <= LINES_KEPT
    assert sum(len(line) + 1 for line in log.lines) <= FIRST_BYTES


def test_a_flood_of_log_is_skipped_not_chased(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.engine_log.write_bytes(b"first\n")
    log = LogTail(run)
    log.look()
    with run.engine_log.open("ab") as file:
        file.write(b"x" * 99 + b"\n")
        file.write(b"".join(b"%099d\n" % number for number in range(6 * PIECE // 100)))
    log.look()
    assert log._offset == run.engine_log.stat().st_size


def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.engine_log.write_bytes(b"y" * (FIRST_BYTES + 5))
    log = LogTail(run)
    log.look()
    assert len(log._rest) <= 2000


def test_the_machine_is_known_by_its_last_minutes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    tail = MachineTail(run)
    assert not tail.look()
    lines = [encode(Telemetry(time=float(second), cpu_utilization=second / 10_000)) for second in range(5000)]
    run.telemetry.write_bytes(b"".join(lines))
    assert tail.look()
    assert tail.newest is not None and tail.newest.time == 4999.0
    assert len(tail.samples) <= 300
    os.close(begin_anew(run.telemetry, open_private(run.telemetry, os.O_RDWR), keep=1))
    again = MachineTail(run)
    assert not tail.look() and again.look()
    assert again.newest == tail.newest and len(again.samples) == 300, "also of the segment before"


def test_sent_requests_have_one_outcome(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)
    run_view = RunView(run)
    first = run_view.send(Pause, {})
    second = run_view.send(Set, {"max_steps": 700})
    third = run_view.send(Delete, {"step": 222})
    assert [request.words for request in run_view.requests.all] == [
        "pause: sent", "set max_steps = 700: sent", "delete checkpoint at step 222: sent",
    ]  # fmt: skip
    run_view.requests.take(ControlApplied(request=first.request, verb="hold", step=7))
    run_view.requests.take(ControlRefused(request=second.request, verb="set", step=8, reason="no"))
    run_view.requests.take(ControlApplied(request="somebody else's", verb="hold", step=7))
    run_view.requests.give_up()
    fates = {request.request: request.outcome for request in run_view.requests.all}
    assert fates == {first.request: "applied", second.request: "refused", third.request: "unread"}


def test_orders_to_the_dead_are_not_sent(recorded: Recorded) -> None:
    run = recorded("full-parked")
    run_view = RunView(run)
    with pytest.raises(UsageError, match="is not running"):
        run_view.send(Pause, {})
    assert run_view.requests.all == [] and not list(run.folder.glob("inbox/*"))


def test_a_followed_run_takes_in_what_is_written(recorded: Recorded) -> None:
    run = recorded("wiki-style-lora", living=True)
    run_view = RunView(run)
    state, num_events = run_view.state, len(run_view.history.events)
    with run.journal.open("ab") as file:
        file.write(encode(msgspec.structs.replace(make_evaluation(501), attempt=state.attempt, token=state.token)))
    assert run_view.look()
    assert run_view.state.last_evaluation is not None and run_view.state.last_evaluation.step == 501
    assert len(run_view.history.events) == num_events + 1
    assert not run_view.look()


def test_the_whole_history_is_one_chart(recorded: Recorded) -> None:
    run_view = RunView(recorded("wiki-style-finished"))
    steps = [s for attempt in run_view.curves.attempts for s in attempt.series["loss"].first]
    assert steps == sorted(steps) and steps[0] == 1
    assert len(run_view.curves.attempts) == 3 and [b.attempt for b in run_view.history.attempt_starts] == [2, 3]
    assert run_view.has_ended and not run_view.is_running


def test_a_damaged_run_json_does_not_hide_the_run(recorded: Recorded) -> None:
    run = recorded("full-parked")
    run.facts.write_bytes(b"{")
    assert RunView(run).state.phase == "parked"


def test_modules_below_the_screens_load_no_textual() -> None:
    state, others = "run_view history sent_requests tails run_list", "render.spans render.glyphs render.terminal"
    modules = [f"state.{name}" for name in state.split()] + [*others.split(), "drawing.charts.loss_chart"]
    names = ", ".join(f"ftui.tui.{module}" for module in [*modules, "drawing.tiles"])
    code = f"import {names}, sys; sys.exit(any(m.split('.')[0] in ('textual', 'rich') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_sent_requests_are_bounded(recorded: Recorded) -> None:
    run_view = RunView(recorded("wiki-style-lora", living=True))
    for _ in range(60):
        run_view.send(Pause, {})
    assert len(run_view.requests.all) == 50
    assert isinstance(run_view.requests, SentRequests)


def test_a_look_in_vain_finds_nothing(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then next to nothing is drawn: also where the processes are looked at again."""
    run = recorded("wiki-style-lora", living=True)
    run_view = RunView(run)
    while run_view.look():
        continue
    monkeypatch.setattr("ftui.tui.state.run_view.JUDGE_SECONDS", 0.0)
    assert not run_view.look()
    monkeypatch.setattr("ftui.runs.status.is_alive", lambda process: False)
    assert run_view.look() and not run_view.is_running
    assert not run_view.look()
