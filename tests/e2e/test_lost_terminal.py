"""A screen ends after it has lost its terminal, at SIGHUP and at SIGTERM, whatever its event loop does."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.pty_screen import on_screen
from tests.support.replayed import replay

SECONDS = 30.0  # on a quiet machine it takes less than two; one that waits for a lock never ends
FTUI = [sys.executable, "-m", "ftui", "attach", "full-parked"]
IGNORING = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"

STUCK = """
import sys, threading, time
from ftui.tui.app import FtuiApp
on_mount = FtuiApp.on_mount
def stuck(self):
    on_mount(self)
    self.set_timer(0.5, lambda: WAY)
FtuiApp.on_mount = stuck
from ftui.cli.main import main
sys.exit(main())
"""
ALONE, IN_A_SHELL = "exec {}", "{}; exec sleep 60"
WAYS = {
    "waits for a lock": "[lock.acquire() for lock in [threading.Lock()] * 2]",
    "computes": "[None for _ in iter(int, 1) if False]",
    "sleeps": "time.sleep(60)",
    "is well": "None",
}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    replay("full-parked", tmp_path / "runs")
    base = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    places = {"FTUI_RUNS": "runs", "XDG_STATE_HOME": "state", "HOME": "home"}
    own = {name: str(tmp_path / place) for name, place in places.items()}
    return base | own | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"}


def happens(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends(command: Sequence[str], env: dict[str, str], how: str) -> None:
    with on_screen(command, env, 80, 24) as program:
        program.wait_for("full-parked")
        program.read(1.0)
        if how == "close":
            os.close(program.descriptor)
            program.descriptor = os.open(os.devnull, os.O_RDONLY)
        else:
            os.kill(program.pid, getattr(signal, how))
        assert happens(lambda: is_gone(program.pid), SECONDS)


@pytest.mark.parametrize(
    ("way", "how"),
    [(way, how) for way in ("waits for a lock", "computes") for how in ("close", "SIGTERM", "SIGHUP")]
    + [("sleeps", "SIGTERM"), ("is well", "close"), ("is well", "SIGTERM")],
)
def test_whatever_the_event_loop_does(way: str, how: str, env: dict[str, str], tmp_path: Path) -> None:
    """Whoever writes after Textual's writer thread has ended with the terminal waits for ever."""
    script = tmp_path / "stuck.py"
    script.write_text(STUCK.replace("WAY", WAYS[way]))
    ends([sys.executable, str(script), *FTUI[3:]], env, how)


@pytest.mark.parametrize("how", ["close", "SIGTERM", "SIGHUP"])
def test_where_hangups_were_ignored_before(how: str, env: dict[str, str]) -> None:
    ends([sys.executable, "-c", IGNORING, *FTUI], env, how)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize(
    ("end", "shell"),
    [
        ("kill-session", ALONE), ("kill-server", IN_A_SHELL), ("kill-pane", IN_A_SHELL), ("kill-window", ALONE),
        ("SIGKILL", ALONE), ("SIGKILL", IN_A_SHELL),
    ],
)  # fmt: skip
def test_no_screen_outlives_its_tmux(end: str, shell: str, env: dict[str, str], tmp_path: Path) -> None:
    server = ["tmux", "-L", f"ftui-{os.getpid()}-{time.monotonic_ns()}", "-f", os.devnull]

    def tmux(*arguments: str) -> str:
        return subprocess.run([*server, *arguments], env=env, capture_output=True, text=True, check=False).stdout

    note = tmp_path / "pid"
    started = shlex.join(["sh", "-c", f"echo $$ > {note}; exec {shlex.join(FTUI)}"])
    tmux("new-session", "-d", "-x", "80", "-y", "24", shell.format(started))
    try:
        assert happens(lambda: "full-parked" in tmux("capture-pane", "-p"), 30)
        pid = int(note.read_text())
        if end == "SIGKILL":
            os.kill(int(tmux("display-message", "-p", "#{pid}")), signal.SIGKILL)
        else:
            tmux(end)
        assert happens(lambda: is_gone(pid), SECONDS)
    finally:
        tmux("kill-server")
