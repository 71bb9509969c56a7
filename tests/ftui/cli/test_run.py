"""Following a run from its files: what is printed, the exit code, and that leaving it changes nothing."""

import io
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.cli import follow as following
from ftui.cli import run as headless
from ftui.cli.follow import follow
from ftui.cli.run import Wishes, command_for, run_headless
from ftui.cli.terminal import LiveOutput
from ftui.errors import FtuiError, ProfileError, UsageError
from ftui.launch import open_run
from ftui.launch.open_run import OpenedRun, locate_run
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.runs.events import ControlApplied, PhaseChanged, RunFailed, RunFinished, Warned
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.requests import Abort, Stop, read_requests
from ftui.runs.run_folder import Run, runs_root
from ftui.runs.state import RunState
from ftui.runs.status import Watch
from ftui.system.files import Lock
from ftui.system.process_id import Identity
from tests.support.events import make_run_started, make_step

PROFILE = '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "My Profile.toml"
    path.write_text(PROFILE)
    path.with_name("rows.jsonl").touch()
    return path


@pytest.fixture
def profile(path: Path) -> Profile:
    return resolve(path, overrides=["log.logging_steps=2"]).profile


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(following, "JUDGE_SECONDS", 0.02)
    monkeypatch.setattr(following, "LEAVE_SECONDS", 0.05)


def opened(run: Run, *, history: int = 0, supervisor: Any = None) -> OpenedRun:
    return OpenedRun(run, "start", RunState(), Watch(run), history=history, supervisor=supervisor)


FINISHED = RunFinished(step=4, reason="all steps done", final="final")


def test_a_whole_run_in_plain_lines(make_run: Any, append: Any, dead: Identity, profile: Profile) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    append(run.journal, PhaseChanged(phase="loading", detail="the model"), make_run_started(max_steps=4), attempt=1)
    append(run.metrics, *(make_step(n, time=10.0 + n) for n in range(1, 5)))
    append(run.journal, FINISHED, attempt=1)
    output = io.StringIO()
    assert follow(opened(run), profile, LiveOutput(output)) == 0
    lines = output.getvalue().splitlines()
    assert lines[0] == "loading · the model"
    assert [line.split(" · ")[0] for line in lines if line.startswith("step")] == ["step 2/4", "step 4/4"]
    assert "mine finished at step 4/4: all steps done" in lines
    assert "\r" not in output.getvalue() and "\x1b" not in output.getvalue()


def test_a_letter_changes_how_often_steps_are_printed(
    make_run: Any, append: Any, dead: Identity, profile: Profile
) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    every = ControlApplied(request="x", verb="set", step=0, settings={"logging_steps": 1.0})
    append(run.journal, make_run_started(max_steps=4), every, attempt=1)
    append(run.metrics, *(make_step(n, time=10.0 + n) for n in range(1, 5)))
    append(run.journal, FINISHED, attempt=1)
    output = io.StringIO()
    assert follow(opened(run), profile, LiveOutput(output)) == 0
    printed = [line.split(" · ")[0] for line in output.getvalue().splitlines() if line.startswith("step")]
    assert printed == [f"step {n}/4" for n in range(1, 5)]


def test_a_terminal_gets_one_line_that_is_drawn_over(
    make_run: Any, append: Any, dead: Identity, profile: Profile
) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    append(run.journal, make_run_started(max_steps=4), Warned(message="hot\x1b[2J\x07"), attempt=1)
    append(run.metrics, make_step(1))
    output = Terminal()
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(follow(opened(run), profile, LiveOutput(output))))
    thread.start()
    wait_for(lambda: "\rstep 1/4" in output.getvalue())
    append(run.journal, FINISHED, attempt=1)
    thread.join(60)
    assert result == [0]
    text = output.getvalue()
    assert text.replace("\x1b[K", "").count("\x1b") == 0, "no escape but erase to the end of the line"
    assert "warning: hot\u241b[2J\u2407\n" in text
    assert text.count("\rstep 1/4") == 1, "an unchanged line is not sent again"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_drawn_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    output = Terminal()
    lines = LiveOutput(output)
    lines.draw("x" * 50)
    lines.print("event")
    assert output.getvalue() == "\r" + "x" * 18 + "…\x1b[K" + "\r\x1b[K" + "event\n"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    output = Terminal()
    LiveOutput(output).draw("x")
    assert output.getvalue() == ""


def test_a_failure_goes_to_standard_error_with_its_code(
    make_run: Any, append: Any, dead: Identity, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    append(run.journal, RunFailed(message="no rows", hint="add some", exit_code=31, error="DataError"), attempt=1)
    assert follow(opened(run), profile, LiveOutput(io.StringIO())) == 31
    assert capsys.readouterr().err == "error: mine: no rows\n  hint: add some\n"


def test_a_run_that_is_lost_ends_the_following(
    make_run: Any, append: Any, dead: Identity, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    assert follow(opened(run), profile, LiveOutput(io.StringIO())) == 21
    assert "without writing why" in capsys.readouterr().err


def test_the_end_of_an_earlier_attempt_is_old_news(
    make_run: Any, append: Any, dead: Identity, profile: Profile
) -> None:
    run = make_run("mine")
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
    append(run.journal, RunFailed(message="old", hint="", exit_code=31, error=""), attempt=1)
    result: list[int] = []
    thread = threading.Thread(
        target=lambda: result.append(follow(opened(run, history=1), profile, LiveOutput(io.StringIO())))
    )
    thread.start()
    time.sleep(0.1)
    assert result == []
    append(run.supervisor_log, EngineStarted(identity=dead), attempt=2)
    append(run.journal, FINISHED, attempt=2)
    thread.join(60)
    assert result == [0]


def test_a_supervisor_that_cannot_start_is_told(make_run: Any, profile: Profile) -> None:
    run = make_run("mine")
    (run.folder / "supervisor.log").write_text("ImportError: no\x1b such module\n")
    child = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(1)"])
    with pytest.raises(FtuiError, match="did not start") as caught:
        follow(opened(run, supervisor=child), profile, LiveOutput(io.StringIO()))
    assert "ImportError" in caught.value.hint


def test_which_run_and_profile_a_word_means(path: Path) -> None:
    folder, resolved = locate_run(str(path), None, ["train.seed=5"])
    assert folder == runs_root() / "my-profile"
    assert resolved.profile.train.seed == 5
    assert locate_run(str(path), None, ["run.name=own"])[0] == runs_root() / "own"
    assert locate_run(str(path), "given", ["run.name=own"])[0] == runs_root() / "given"
    with pytest.raises(UsageError):
        locate_run(str(path), "Not Safe", [])


def test_a_run_can_be_named_in_place_of_its_profile(path: Path, make_run: Any) -> None:
    run = make_run("mine")
    run.profile.write_text(PROFILE.replace("[run]", '[run]\nname = "mine"'))
    assert locate_run("mine", None, [])[0] == run.folder
    assert locate_run("mine", "other", [])[0] == runs_root() / "other"
    with pytest.raises(ProfileError, match="no profile or run 'nobody'"):
        locate_run("nobody", None, [])


def test_the_command_that_attaches_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(runs_root() / "x")
    assert command_for(run, "my p.toml", ["train.seed=1"]) == "ftui --run x"
    (tmp_path / "x").write_text("")
    assert command_for(run, "my p.toml", ["train.seed=1"]) == ("ftui --run 'my p.toml' --name x --set train.seed=1")


def test_ctrl_c_asks_for_a_stop_then_for_an_abort_then_leaves(
    path: Path, append: Any, living: Identity, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(run: Run, lock: Lock | None = None, cards: Any = ()) -> None:
        append(run.supervisor_log, EngineStarted(identity=living), attempt=1)

    def interrupt(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(open_run, "launch", launch)
    monkeypatch.setattr(headless, "follow", interrupt)
    assert run_headless(str(path), Wishes(name="mine")) == 130
    output = capsys.readouterr().out
    assert "the run mine keeps running" in output
    assert "ftui --run mine\n" in output
    assert "ftui status mine" in output
    assert "ftui stop mine" in output
    letters = [found.request for found in read_requests(Run(runs_root() / "mine"))]
    assert [type(request) for request in letters] == [Stop, Abort]
    assert {request.attempt for request in letters if request} == {1}


@pytest.mark.parametrize("verb", ["run", "resume", "run by its name"])
def test_ctrl_c_leaves_a_run_that_this_command_only_attached_to(
    verb: str, path: Path, append: Any, living: Identity, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def launch(run: Run, lock: Lock | None = None, cards: Any = ()) -> None:
        append(run.supervisor_log, EngineStarted(identity=living), attempt=1)

    def interrupt(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(open_run, "launch", launch)
    monkeypatch.setattr(headless, "wait_for_start", lambda opened: None)
    assert run_headless(str(path), Wishes(name="mine", detach=True)) == 0
    monkeypatch.setattr(headless, "follow", interrupt)
    capsys.readouterr()
    attach = {
        "run": lambda: run_headless(str(path), Wishes(name="mine")),
        "resume": lambda: headless.resume_headless("mine", None, Wishes()),
        "run by its name": lambda: run_headless("mine", Wishes()),
    }
    assert attach[verb]() == 130
    output = capsys.readouterr().out
    assert "attached to it" in output and "the run mine keeps running" in output and "saves a checkpoint" not in output
    assert list(read_requests(Run(runs_root() / "mine"))) == []


def test_detaching_at_once_waits_for_the_start(
    path: Path, append: Any, living: Identity, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])

    def launch(run: Run, lock: Lock | None = None, cards: Any = ()) -> Any:
        threading.Timer(0.1, lambda: append(run.supervisor_log, EngineStarted(identity=living), attempt=1)).start()
        return child

    monkeypatch.setattr(open_run, "launch", launch)
    assert run_headless(str(path), Wishes(name="mine", detach=True)) == 0
    told = capsys.readouterr().out
    assert "ftui stop mine" in told
    assert "it reads its rows first, and may still refuse them" in told
    child.wait()


def test_a_run_that_is_over_says_so_and_exits_with_its_code(
    path: Path, append: Any, dead: Identity, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(run: Run, lock: Lock | None = None, cards: Any = ()) -> None:
        append(run.supervisor_log, EngineStarted(identity=dead), attempt=1)
        append(run.journal, make_run_started(max_steps=4), FINISHED, attempt=1)

    monkeypatch.setattr(open_run, "launch", launch)
    assert run_headless(str(path), Wishes(name="mine")) == 0
    capsys.readouterr()
    assert run_headless(str(path), Wishes(name="mine")) == 0
    said = capsys.readouterr().out
    assert "mine has ended" in said and "the same profile" in said and "has changed" not in said
    assert run_headless(str(path), Wishes(name="mine", overrides=("train.learning_rate=0.5",))) == 0
    said = capsys.readouterr().out
    assert "the profile as it is now" in said and "The profile has changed in train.learning_rate:" in said
