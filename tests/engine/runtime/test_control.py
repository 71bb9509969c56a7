"""Control requests: answered once, paused, refused, ended."""

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.engine.runtime import request_inbox
from ftui.engine.runtime.control_flags import Control, RequestLevel, Shutdown
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.runtime.request_inbox import RequestInbox, answers_in
from ftui.runs import requests
from ftui.runs.events import ControlApplied, ControlRefused, PhaseChanged
from ftui.runs.journal import Tail
from ftui.runs.requests import (
    Abort,
    AnyRequest,
    Continue,
    Evaluate,
    Park,
    Pause,
    Save,
    Set,
    Stop,
    new_id,
    write_request,
)
from ftui.runs.run_folder import Run
from ftui.system.files import read_plain
from tests.support.driving import wait_until


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def engine(run: Run, attempt: int = 1, token: str = "one") -> Control:
    control = Control()
    control.open(RequestInbox(run, EventWriter(run, attempt=attempt, token=token), answers_in(run)))
    return control


def stamp(attempt: int = 1, token: str = "one") -> dict[str, object]:
    return {"id": new_id(), "attempt": attempt, "token": token}


def answers(run: Run) -> list[tuple[type, str]]:
    kinds = (ControlApplied, ControlRefused)
    return [(type(r), r.verb) for r in Tail(run.journal).read() if isinstance(r, kinds)]


def look(control: Control, ready: RequestLevel = RequestLevel.CONTROL) -> None:
    control._next_read = 0.0
    control.poll(ready)


def test_a_paused_engine_waits_until_it_may_go_on(run: Run) -> None:
    control = engine(run)
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    paused = threading.Thread(target=look, args=(control,))
    paused.start()
    wait_until(lambda: answers(run) == [(ControlApplied, "hold")])
    paused.join(0.1)
    assert paused.is_alive()
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    write_request(run, Continue(**stamp()))  # type: ignore[arg-type]
    paused.join(60)
    assert not paused.is_alive()
    assert answers(run) == [(ControlApplied, "hold"), (ControlRefused, "hold"), (ControlApplied, "continue")]
    phases = [r.phase for r in Tail(run.journal).read() if isinstance(r, PhaseChanged)]
    assert phases == ["held", "starting"]
    assert list(run.inbox.iterdir()) == []


def test_a_request_to_an_earlier_attempt_is_refused_and_one_answered_is_thrown_away(run: Run) -> None:
    stale = Abort(**stamp())  # type: ignore[arg-type]
    write_request(run, stale)
    later = engine(run, 2, "two")
    look(later)
    assert answers(run) == [(ControlRefused, "abort")]
    write_request(run, stale)  # as if the file had outlived its answer
    look(engine(run, 2, "two"))
    assert answers(run) == [(ControlRefused, "abort")]
    assert list(run.inbox.iterdir()) == []


def test_requests_that_need_training_are_refused_before_it(run: Run) -> None:
    control = engine(run)
    write_request(run, Set(**stamp(), max_steps=4))  # type: ignore[arg-type]
    look(control)
    assert answers(run) == [(ControlRefused, "set")]


def test_requests_wait_for_a_place_where_they_can_be_obeyed(run: Run) -> None:
    control, handled = engine(run), []

    def handle(request: AnyRequest) -> None:
        handled.append(request.verb)
        look(control, RequestLevel.SAVE)  # an evaluation looks up between its batches

    control.start_training(handle)
    for kind in (Evaluate, Save):
        write_request(run, kind(**stamp()))  # type: ignore[arg-type]
    look(control, RequestLevel.CONTROL)
    assert handled == []
    look(control, RequestLevel.SAVE)
    assert handled == ["checkpoint"]
    look(control, RequestLevel.ALL)
    assert handled == ["checkpoint", "evaluate"]


def test_while_one_request_is_handled_only_an_end_is_obeyed(run: Run) -> None:
    control = engine(run)

    def handle(request: AnyRequest) -> None:
        write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
        look(control, RequestLevel.SAVE)
        assert answers(run) == []
        write_request(run, Park(**stamp()))  # type: ignore[arg-type]
        look(control, RequestLevel.SAVE)

    control.start_training(handle)
    write_request(run, Evaluate(**stamp()))  # type: ignore[arg-type]
    with pytest.raises(Shutdown) as leaving:
        look(control, RequestLevel.ALL)
    assert leaving.value.why == "park"
    control.answer(leaving.value.request, "saved")
    control.close("the run has ended")
    assert answers(run) == [(ControlApplied, "park"), (ControlRefused, "evaluate"), (ControlRefused, "hold")]
    assert list(run.inbox.iterdir()) == []


def test_a_pause_while_a_request_is_handled_ends_and_counts_once(run: Run) -> None:
    """A reward function breaks in an evaluation that somebody asked for."""
    control = engine(run)

    def handle(request: AnyRequest) -> None:
        for kind in (Pause, Continue):
            write_request(run, kind(**stamp()))  # type: ignore[arg-type]
        control._next_read = 0.0
        control.pause("it is broken")
        control.inbox.answer(request)  # type: ignore[union-attr]

    control.start_training(handle, lambda: pytest.fail("it stays paused"))
    write_request(run, Evaluate(**stamp()))  # type: ignore[arg-type]
    begun = time.perf_counter()
    look(control, RequestLevel.ALL)
    elapsed = time.perf_counter() - begun
    applied = [(ControlRefused, "hold"), (ControlApplied, "continue"), (ControlApplied, "evaluate")]
    assert answers(run) == applied
    assert 0 < control.away_seconds <= elapsed


def test_sigterm_is_obeyed_while_paused(run: Run) -> None:
    control = engine(run)
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    threading.Timer(0.4, lambda: setattr(control, "terminated", True)).start()
    with pytest.raises(Shutdown, match="preempted"):
        look(control)


@pytest.mark.parametrize(
    ("kind", "has_checkpoint", "leaves_at_once"),
    [(Stop, False, True), (Stop, True, False), (Park, True, True), (Abort, True, True), (Abort, False, True)],
)
@pytest.mark.parametrize("paused", [True, False])
def test_a_stop_waits_for_the_weights_where_there_are_some(
    kind: Any, has_checkpoint: bool, leaves_at_once: bool, paused: bool, run: Run
) -> None:
    control = engine(run)
    control.has_checkpoint = has_checkpoint
    if paused:
        write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    write_request(run, kind(**stamp()))
    if leaves_at_once:
        with pytest.raises(Shutdown):
            look(control)
        return
    look(control)  # a pause ends, too
    assert answers(run)[-1] == (ControlApplied, "stop")
    control.start_training(lambda request: None)
    with pytest.raises(Shutdown, match="stop"):
        look(control)
    look(control)  # who leaves the run looks again, between two tokens of a sample, and must come to its end


def forge(run: Run, kind: str) -> None:
    """A file that no honest command wrote, older than all that come."""
    request = Continue(**stamp(token="one" if kind == "own" else "other"))  # type: ignore[arg-type]
    content = b"{" * 900 if kind == "garbage" else msgspec.json.encode(request)
    (run.inbox / f"{time.time_ns():020d}-{request.id}.json").write_bytes(content)


@pytest.mark.parametrize("kind", ["foreign", "garbage", "own"])
def test_a_flood_of_forged_requests_neither_stops_training_nor_hides_an_honest_one(
    kind: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by a millisecond whenever it is asked, as reading a file takes: 50 files a look."""
    seconds = itertools.count()
    monkeypatch.setattr(request_inbox, "monotonic", lambda: next(seconds) / 1000)
    run.inbox.mkdir()
    for _ in range(400):
        forge(run, kind)
    control = engine(run)
    honest = Save(**stamp())  # type: ignore[arg-type]
    write_request(run, honest)
    handled: list[AnyRequest] = []
    control.start_training(handled.append)
    looks = 0
    while not handled:
        before = len(list(run.inbox.iterdir()))
        look(control, RequestLevel.ALL)
        looks += 1
        assert before - len(list(run.inbox.iterdir())) <= 60
    assert handled == [honest] and looks <= 10
    assert [file.name[-21:-5] for file in run.inbox.iterdir()] == [honest.id], "the others are gone"
    refused = [record for record in Tail(run.journal).read() if isinstance(record, ControlRefused)]
    assert len(refused) == 400 if kind == "own" else len(refused) <= looks * request_inbox.MOST_REFUSALS


def test_what_cannot_be_removed_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    control = engine(run)
    (run.inbox / f"{1:020d}-{'a' * 16}.json").mkdir(parents=True)
    look(control)
    assert answers(run) == [(ControlRefused, "")]
    monkeypatch.setattr(requests, "read_plain", None)
    look(control)


def test_a_look_after_a_long_step_may_take_longer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the honest one is answered after one step, not after ten."""
    clock = [0.0]
    run.inbox.mkdir()
    for _ in range(300):
        forge(run, "foreign")
    monkeypatch.setattr(request_inbox, "monotonic", lambda: clock[0])
    control = engine(run)

    def read(*given: Any) -> Any:
        clock[0] += 0.001
        return read_plain(*given)

    monkeypatch.setattr(requests, "read_plain", read)
    clock[0] = 10.0
    look(control)
    assert list(run.inbox.iterdir()) == [] and clock[0] < 12.1
