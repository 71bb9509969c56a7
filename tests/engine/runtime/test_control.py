"""The engine's desk and control: answered once, held, refused, ended."""

import threading
import time
from pathlib import Path

import pytest

from ftui.engine.runtime.control_flags import Control, Leave, Ready
from ftui.engine.runtime.event_writer import Logbook
from ftui.engine.runtime.request_inbox import LetterDesk, answers_in
from ftui.runs.events import ControlApplied, ControlRefused, PhaseChanged
from ftui.runs.journal import Tail
from ftui.runs.requests import Abort, AnyRequest, Continue, Evaluate, Park, Pause, Save, Set, new_id, write_request
from ftui.runs.run_folder import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def engine(run: Run, attempt: int = 1, token: str = "one") -> Control:
    control = Control()
    control.open(LetterDesk(run, Logbook(run, attempt=attempt, token=token), answers_in(run)))
    return control


def stamp(attempt: int = 1, token: str = "one") -> dict[str, object]:
    return {"id": new_id(), "attempt": attempt, "token": token}


def answers(run: Run) -> list[tuple[type, str]]:
    kinds = (ControlApplied, ControlRefused)
    return [(type(r), r.verb) for r in Tail(run.journal).read() if isinstance(r, kinds)]


def look(control: Control, ready: Ready = Ready.CONTROL) -> None:
    control._next_look = 0.0
    control.poll(ready)


def test_a_held_engine_stands_still_until_it_may_go_on(run: Run) -> None:
    control = engine(run)
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    held = threading.Thread(target=look, args=(control,))
    held.start()
    time.sleep(0.6)
    assert held.is_alive()
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    write_request(run, Continue(**stamp()))  # type: ignore[arg-type]
    held.join(5)
    assert not held.is_alive()
    assert answers(run) == [(ControlApplied, "hold"), (ControlRefused, "hold"), (ControlApplied, "continue")]
    phases = [r.phase for r in Tail(run.journal).read() if isinstance(r, PhaseChanged)]
    assert phases == ["held", "starting"]
    assert list(run.inbox.iterdir()) == []


def test_a_letter_to_an_earlier_attempt_is_refused_and_one_answered_is_thrown_away(run: Run) -> None:
    stale = Abort(**stamp())  # type: ignore[arg-type]
    write_request(run, stale)
    later = engine(run, 2, "two")
    look(later)
    assert answers(run) == [(ControlRefused, "abort")]
    write_request(run, stale)  # as if the file had outlived its answer
    look(engine(run, 2, "two"))
    assert answers(run) == [(ControlRefused, "abort")]
    assert list(run.inbox.iterdir()) == []


def test_letters_that_need_training_are_refused_before_it(run: Run) -> None:
    control = engine(run)
    write_request(run, Set(**stamp(), max_steps=4))  # type: ignore[arg-type]
    look(control)
    assert answers(run) == [(ControlRefused, "set")]


def test_letters_wait_for_a_place_where_they_can_be_obeyed(run: Run) -> None:
    control, obeyed = engine(run), []

    def obey(request: AnyRequest) -> None:
        obeyed.append(request.verb)
        look(control, Ready.SAVE)  # an evaluation looks up between its batches

    control.train(obey)
    for kind in (Evaluate, Save):
        write_request(run, kind(**stamp()))  # type: ignore[arg-type]
    look(control, Ready.CONTROL)
    assert obeyed == []
    look(control, Ready.SAVE)
    assert obeyed == ["checkpoint"]
    look(control, Ready.ALL)
    assert obeyed == ["checkpoint", "evaluate"]


def test_while_one_letter_is_obeyed_only_an_end_is_heard(run: Run) -> None:
    control = engine(run)

    def obey(request: AnyRequest) -> None:
        write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
        look(control, Ready.SAVE)
        assert answers(run) == []
        write_request(run, Park(**stamp()))  # type: ignore[arg-type]
        look(control, Ready.SAVE)

    control.train(obey)
    write_request(run, Evaluate(**stamp()))  # type: ignore[arg-type]
    with pytest.raises(Leave) as leaving:
        look(control, Ready.ALL)
    assert leaving.value.why == "park"
    control.answer(leaving.value.request, "saved")
    control.close("the run has ended")
    assert answers(run) == [(ControlApplied, "park"), (ControlRefused, "evaluate"), (ControlRefused, "hold")]
    assert list(run.inbox.iterdir()) == []


def test_sigterm_is_heard_while_held(run: Run) -> None:
    control = engine(run)
    write_request(run, Pause(**stamp()))  # type: ignore[arg-type]
    threading.Timer(0.4, lambda: setattr(control, "terminated", True)).start()
    with pytest.raises(Leave, match="preempted"):
        look(control)
