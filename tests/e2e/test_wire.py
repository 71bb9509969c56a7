"""What the program really writes to a terminal, byte by byte, for a run that is full of text which would steer it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from ftui.runs.run_folder import Run
from tests.support.evil import EVIL, evil_name, evil_run, steers
from tests.support.pty_screen import Screened, on_screen

FTUI = [sys.executable, "-m", "ftui"]
EVERYTHING = " ".join(EVIL[name] for name in EVIL if name != "long") + EVIL["long"]
LEAVE_SCREEN, MOUSE_OFF = b"\x1b[?1049l", b"\x1b[?1000l"

# All that the screens have to say to a terminal: colours, where the cursor goes, erasing, modes and their queries.
OWN = re.compile(
    r"\x1b\[[0-9;:]*m"
    r"|\x1b\[[0-9]*(?:;[0-9]+)?H"
    r"|\x1b\[[0-9]*[ABCDGJKSTd]"
    r"|\x1b\[\?[0-9;]+[hl]"
    r"|\x1b\[\?[0-9]+\$p"
    r"|\x1b\[[<>=?][0-9;]*u"
    r"|\x1b\[[0-9;]*t"
    r"|\x1b\[6n|\x1b\[c"
    r"|\x1b\]22;(?:default|text|pointer)\x07"  # the shape of the mouse pointer
    r"|\x1b7|\x1b8"
)


def foreign(wire: bytes) -> list[str]:
    """What is left that could steer a terminal, with what follows it, when the program's own words are taken out."""
    text = OWN.sub("", wire.decode()).replace("\r", "").replace("\n", "")  # strictly: what is no UTF-8 is a fault too
    return [ascii(text[at : at + 24]) for at, sign in enumerate(text) if steers(sign)]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    base = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    places = {"FTUI_RUNS": "runs", "XDG_STATE_HOME": "state", "HOME": "home"}
    own = {name: str(tmp_path / place) for name, place in places.items()}
    python = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return base | own | python | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return evil_run(tmp_path / "runs" / "evil", EVERYTHING)


@pytest.fixture
def strange(tmp_path: Path) -> Run:
    """The same in a folder with a name that nobody checked: it can be opened by its path."""
    return evil_run(tmp_path / "elsewhere" / evil_name(EVIL["colour"] + EVIL["title"] + EVIL["c1"]), EVERYTHING)


@pytest.fixture
def terminal(env: dict[str, str], tmp_path: Path) -> Iterator["Terminals"]:
    made = Terminals(env, tmp_path)
    yield made
    made.close()


class Terminals:
    """Programs on terminals, each ended when the test is."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self._env, self._folder = env, folder
        self._open: list[Screened] = []

    def start(self, *arguments: str, before: Sequence[str] = ()) -> Screened:
        program = on_screen([*before, *FTUI, *arguments], self._env, 80, 24, cwd=str(self._folder))
        self._open.append(program)
        return program

    def close(self) -> None:
        for program in self._open:
            program.close()


def test_the_grammar_knows_foreign_bytes() -> None:
    assert foreign(b"\x1b[1;31mx\x1b[2;3H\x1b[?25l\r\n") == []
    for text in ("\x1b]0;x\x07", "\x1bPx\x1b\\", "\x9b31m", "a\u202eb", "\x7f", "\x1b[31", "\x08"):
        assert foreign(text.encode()) != [], ascii(text)


def test_the_live_view_and_its_farewell(terminal: Terminals, strange: Run) -> None:
    program = terminal.start("attach", str(strange.folder))
    program.wait_for("failed")
    for keys, seen in (("\x7f", "loss"), ("v", "log"), ("L", "the end"), ("q", "loss"), ("c", "checkpoint-4")):
        program.press(keys)
        program.wait_for(seen)
    program.press("qq")
    program.ended()
    after = program.wire().rpartition(LEAVE_SCREEN)[2].decode()
    assert "attach again" in after and "\u241b[31mred" in after
    assert foreign(program.wire()) == []


def test_the_list_and_the_palette(terminal: Terminals, run: Run) -> None:
    Path(run.folder.parent.parent, evil_name(EVIL["colour"], ".toml")).write_text('[run]\nstage = "\\u001b[31m"\n')
    program = terminal.start()
    program.wait_for("failed")
    program.press("\x10")
    program.wait_for("Search for")
    program.press("evil")
    program.wait_for("run evil")
    program.press("\x1b[200~\x9b31m\x07\x1b]0;pasted\x07\x1b[201~")
    program.wait_for("pasted")
    program.press("\x1b")
    program.wait_for("n new")  # with the next key right behind it, esc is another key
    program.press("n")
    program.wait_for("profiles in this folder")
    assert "\u241b[31mred" in "\n".join(program.shown())
    program.press("qq")
    program.ended()
    assert foreign(program.wire()) == []


LINES = (["attach", "--plain"], ["status"], ["status", "--json"], ["checkpoints"], ["checkpoints", "--json"], ["log"])


@pytest.mark.parametrize("command", [*LINES, ["runs"]], ids=" ".join)
def test_lines(command: list[str], env: dict[str, str], run: Run, strange: Run) -> None:
    arguments = [] if command == ["runs"] else [str(strange.folder)]
    ended = subprocess.run([*FTUI, *command, *arguments], env=env, capture_output=True, timeout=120, check=False)
    assert b"Traceback" not in ended.stderr and ended.stdout
    assert foreign(ended.stdout) == [] == foreign(ended.stderr)
    if command[0] in ("attach", "log"):
        assert "\u241b[31mred" in ended.stdout.decode()


# -- how the process ends


def gone(program: Screened) -> bool:
    """Whether the process ended by itself; one that waits for a terminal never does."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(0.05)
    return False


def test_sigterm_gives_the_terminal_back(terminal: Terminals, run: Run) -> None:
    program = terminal.start("attach", "evil")
    program.wait_for("failed")
    os.kill(program.pid, signal.SIGTERM)
    assert program.ended() == 0
    end = program.wire()
    assert end.rfind(LEAVE_SCREEN) > end.rfind(b"\x1b[?1049h") >= 0
    assert end.rfind(MOUSE_OFF) > end.rfind(b"\x1b[?1000h") >= 0
    assert end.rfind(b"\x1b[?25h") > end.rfind(b"\x1b[?25l")


IGNORE = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
IGNORING = [sys.executable, "-c", IGNORE]


@pytest.mark.parametrize("before", [[], IGNORING], ids=["SIGHUP", "SIGHUP-ignored"])
def test_a_closed_terminal_ends_the_process(before: list[str], terminal: Terminals, run: Run) -> None:
    program = terminal.start("attach", "evil", before=before)
    program.wait_for("failed")
    os.close(program.descriptor)
    program.descriptor = os.open(os.devnull, os.O_RDONLY)
    assert gone(program)


def test_kill_leaves_the_files_of_the_run_as_they_are(terminal: Terminals, run: Run) -> None:
    program = terminal.start("attach", "evil")
    program.wait_for("failed")
    before = contents(run)
    os.kill(program.pid, signal.SIGKILL)
    assert gone(program)
    assert contents(run) == before


def contents(run: Run) -> dict[str, str]:
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.folder)): sha256(path.read_bytes()).hexdigest() for path in files}
