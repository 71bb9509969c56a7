"""One person's afternoon at the screens: a run is started, steered, left alone, and comes to its end."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from ftui.runs import checkpoint_folders
from ftui.runs.events import ControlApplied, ControlRefused, RunFinished, RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.system.process_id import is_alive
from ftui.tui.open_screens import LEAVE
from tests.support.bench import Workbench, newest, records
from tests.support.driving import at_screen, last, started, steps, wait_for_end, wait_until
from tests.support.pty_screen import Screened

LONG = "train.num_train_epochs=4000 train.warmup_steps=0 checkpoint.save_steps=25 eval.eval_steps=25"
FACTOR = 0.5  # what f offers
SOON = 8  # steps
RULE = "──"


def header(screen: Screened, words: str) -> None:
    """Wait for words in the first line of the live view."""
    _wait_in(screen, lambda lines: lines[:1], words)


def fate(screen: Screened, words: str) -> None:
    """Wait for them at the end of the rule over the events, where the last order's fate stands."""
    _wait_in(screen, lambda lines: [line for line in lines if RULE in line], words)


def _wait_in(screen: Screened, choose: Callable[[list[str]], list[str]], words: str) -> None:
    deadline = time.monotonic() + 60
    while not any(words in line for line in choose(screen.shown())):
        assert time.monotonic() < deadline, f"{words!r} did not appear where it should in:\n" + "\n".join(
            screen.shown()
        )
        screen.read(0.1)


def fill_in(screen: Screened, key: str, text: str, *, instead: bool = False) -> None:
    """Press the key that opens a line of input, put `text` behind what stands there (or in its place), and enter it.

    Without a pause after the key, as who is quick or has a slow link types.
    """
    screen.press(key if instead else key + text)
    screen.wait_for("esc cancel")
    if instead:
        screen.press("\x15")
        screen.read(0.5)
        screen.press(text)
    screen.wait_for(text[-30:])
    screen.press("\r")


def engine_of(run: Run) -> int:
    engine = read_status(run).engine
    assert engine is not None and is_alive(engine)
    return engine.pid


def goes_on(run: Run, engine: int) -> None:
    """The same engine trains, and all that it has written can be read."""
    before = len(steps(run))
    wait_until(lambda: len(steps(run)) > before + 2)
    assert engine_of(run) == engine
    for path in (run.journal, run.metrics, run.supervisor_log, run.telemetry):
        tail = Tail(path)
        assert tail.read() and (tail.num_unknown, tail.num_damaged) == (0, 0), path
    assert checkpoint_folders.newest_valid(run.checkpoints, run.read_facts().run_id)[1] == []


def start(bench: Workbench) -> None:
    """From the list of runs to a run that trains, by way of what would happen; then leave."""
    run = bench.run("mine")
    with at_screen(bench) as screen:
        screen.wait_for("n new")
        screen.press("n")
        screen.wait_for("mine.toml")
        screen.press("\r")
        screen.wait_for("Starts a new run mine")
        fill_in(screen, "e", LONG, instead=True)
        screen.wait_for("4 differ")
        assert not run.folder.exists()
        screen.press("\r")
        header(screen, "training")
        wait_until(lambda: len(steps(run)) >= 3)
        screen.press("q")
        assert screen.ended() == 0
        assert b"The run mine keeps running." in screen.wire()


def steer_and_leave(bench: Workbench, run: Run) -> None:
    with at_screen(bench, "attach") as screen:
        header(screen, "mine  training")
        screen.press(" ")
        fate(screen, "paused at step")
        header(screen, "mine  paused")
        frozen = len(steps(run))
        screen.read(1.0)
        assert len(steps(run)) == frozen == last(run, ControlApplied).step
        screen.press(" ")
        fate(screen, "continued at step")
        header(screen, "mine  training")
        fill_in(screen, "f", "")
        fate(screen, "set at step")
        change = last(run, ControlApplied)
        wait_until(lambda: steps(run)[-1].step > change.step)
        rates = {r.step: r.learning_rate for r in steps(run)}
        assert rates[change.step + 1] == pytest.approx(FACTOR * rates[change.step], rel=0.01)
        screen.press("s")
        fate(screen, "checkpoint asked for at step")
        screen.press("q")
        assert screen.ended() == 0
        farewell = screen.wire().rpartition(LEAVE.encode())[2].decode()
        assert "The run mine keeps running." in farewell and "ftui attach mine" in farewell


def murder_the_screen(bench: Workbench) -> None:
    with at_screen(bench, "attach", "mine") as screen:
        header(screen, "mine  training")
        os.kill(screen.pid, signal.SIGKILL)
        assert screen.ended() == -signal.SIGKILL


def park_and_go_on(bench: Workbench, run: Run) -> str | None:
    """Returns the checkpoint that the second attempt is to resume from."""
    with at_screen(bench, "attach", "mine") as screen:
        header(screen, "mine  training")
        screen.press("p")
        screen.wait_for("Park mine?")
        screen.press("y")
        header(screen, "mine  parked")
        parked, before = newest(run), len(steps(run))
        screen.press("r")
        header(screen, "attempt 2 EXACT")
        wait_until(lambda: len(steps(run)) > before)
        screen.press(" ")
        header(screen, "mine  paused")
        fill_in(screen, "m", str(steps(run)[-1].step + SOON))
        fate(screen, "set at step")
        screen.press(" ")
        header(screen, "mine  finished")
        screen.press("q")
        assert screen.ended() == 0
        assert b"mine is finished." in screen.wire()
    return parked


def test_a_run_from_its_start_to_its_end(watched_bench: Workbench) -> None:
    workbench, run = watched_bench, watched_bench.run("mine")
    workbench.profile("mine")
    start(workbench)
    engine = engine_of(run)
    steer_and_leave(workbench, run)
    goes_on(run, engine)
    murder_the_screen(workbench)
    goes_on(run, engine)
    parked = park_and_go_on(workbench, run)
    wait_for_end(workbench, run)

    answers = [r for r in records(run) if isinstance(r, ControlApplied | ControlRefused)]
    assert [r.verb for r in answers] == ["hold", "continue", "set", "checkpoint", "park", "hold", "set", "continue"]
    assert all(isinstance(r, ControlApplied) for r in answers)
    assert len({r.request for r in answers}) == len(answers)
    assert list(run.inbox.iterdir()) == []
    second = last(run, RunStarted)
    assert (second.attempt, second.reproducibility, second.resumed_from) == (2, "EXACT", parked)
    assert [r.step for r in steps(run)] == list(range(1, last(run, RunFinished).step + 1))
    assert checkpoint_folders.fault(run.final) is None
    assert not [path for path in run.folder.parent.iterdir() if path != run.folder]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_live_view_in_tmux(watched_bench: Workbench) -> None:
    """As many will run it on a pod: steered, made larger, and left, all through tmux."""
    run = started(watched_bench, "mine", "--set", "checkpoint.save_steps=25")
    server = ["tmux", "-L", f"ftui-{os.getpid()}", "-f", os.devnull]

    def tmux(*arguments: str) -> str:
        command = [*server, *arguments]
        return subprocess.run(command, env=watched_bench.env, capture_output=True, text=True, check=True).stdout

    def until(true: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + 30
        while not true(lines := tmux("capture-pane", "-p").splitlines()):
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.1)
        return lines

    command = shlex.join([sys.executable, "-m", "ftui", "attach", "mine"])
    tmux("new-session", "-d", "-x", "80", "-y", "24", f"export TERM=screen-256color; {command}; exec sleep 60")
    try:
        lines = until(lambda lines: "mine  training" in lines[0])
        assert "q detach" in lines[23] and "┤" in "".join(lines)
        tmux("send-keys", "Space")
        until(lambda lines: "mine  paused" in lines[0] and any("paused at step" in line for line in lines[1:]))
        tmux("resize-window", "-x", "120", "-y", "40")
        until(lambda lines: len(lines) == 40 and "q detach" in lines[39] and "mine  paused" in lines[0])
        tmux("send-keys", "m")
        tmux("send-keys", "-l", str(steps(run)[-1].step + SOON))
        until(lambda lines: any("esc cancel" in line for line in lines))
        tmux("send-keys", "Enter")
        until(lambda lines: any("set at step" in line for line in lines))
        tmux("send-keys", "Space")
        until(lambda lines: "mine  finished" in lines[0])
        tmux("send-keys", "q")
        until(lambda lines: lines[0] == "The run mine is finished.")  # and nothing of the view is left
    finally:
        tmux("kill-server")
    assert steps(run)[-1].step == last(run, RunFinished).step
