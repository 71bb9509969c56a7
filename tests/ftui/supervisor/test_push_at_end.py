"""The push at the end of a run: by whom, when, and that nothing it does can harm the run."""

import os
import signal
import sys
import threading
import time
from typing import Any

import pytest
from msgspec.structs import replace

from ftui.runs.journal import encode
from ftui.runs.records.push_records import PushBegan, Pushed, PushFailed
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.supervisor import push_at_end
from ftui.supervisor.settings import read_settings
from ftui.supervisor.supervise import supervise
from ftui.system.process_id import identity_of, this_process
from tests.ftui.supervisor.test_supervisor import able, signals

__all__ = ["signals"]
TO = "hub:us/mine"


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    made.profile.write_text(f'[push]\nto = "{TO}"\n')
    return made


def push_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(push_at_end, "COMMAND", (sys.executable, "-S", "-c", f"import os, sys, time\n{code}"))


@pytest.mark.parametrize(
    ("ending", "pushes"),
    [
        ("finish()", True),
        ("write('journal.jsonl', kind='run_stopped', step=1, reason='', exit_code=10); sys.exit(10)", False),
        ("sys.exit(31)", False),
    ],
)
def test_only_what_has_finished_is_pushed(run: Run, ending: str, pushes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    push_with(monkeypatch, "open('pushed', 'w').write(sys.argv[1])")
    supervise(run, able(ending))
    assert (run.folder / "pushed").exists() == pushes
    if pushes:
        assert (run.folder / "pushed").read_text() == str(run.folder)


def test_a_push_that_fails_leaves_the_run_finished(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    push_with(monkeypatch, "print('why'); sys.exit(51)")
    supervise(run, able("finish()"))
    assert read_status(run).state.phase == "finished" and read_status(run).state.exit_code == 0
    assert "ftui push mine" in capsys.readouterr().err and "why" in run.push_log.read_text()


def test_sigterm_ends_the_push(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    push_with(monkeypatch, "open('began', 'w'); time.sleep(60)")

    def terminate() -> None:
        while not (run.folder / "began").exists():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    supervise(run, able("finish()"))
    thread.join()


def test_a_push_that_does_not_end_is_told_once_and_then_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second SIGTERM would cut short what the first one made it clean up; a hub that hangs keeps no pod."""
    monkeypatch.setattr(push_at_end, "LEAVE_SECONDS", 0.5)
    push_with(
        monkeypatch,
        """import signal, subprocess
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signal.signal(signal.SIGTERM, lambda *_: os.write(log, b'told'))
child = subprocess.Popen(['sleep', '600'])
open('began', 'w').write(str(child.pid))
while True: time.sleep(1)""",
    )
    began = run.folder / "began"
    push_at_end.push_at_end(run, lambda: began.exists() and began.stat().st_size > 0)
    assert (run.folder / "log").read_text() == "told"
    deadline = time.monotonic() + 60
    while identity_of(int(began.read_text())) is not None:  # what it has started ends, too
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("value", "pushes"), [('"none"', False), ('"/x"', True), ("3", False), ("[]", False)])
def test_what_the_supervisor_reads(run: Run, value: str, pushes: bool) -> None:
    run.profile.write_text(f"[push]\nto = {value}\n")
    assert read_settings(run).pushes == pushes


def test_lists_show_the_newest_word(run: Run) -> None:
    """Pushes are of no attempt: whichever is read first, none hides another."""
    began = PushBegan(to=TO, what="final", seal="s", time=1.0, process=this_process())
    killed = replace(began, process=replace(this_process(), started="1"))
    pushed = Pushed(to=TO, what="final", seal="s", place="P", num_files=1, num_bytes=1, verified=True, time=2.0)
    failed = PushFailed(to=TO, what="final", message="no room", time=3.0)
    words = []
    for record in (began, killed, failed, began, pushed):
        with run.pushes.open("ab") as file:
            file.write(encode(record))
        (push,) = read_status(run).state.pushes
        words.append(push.words)
    assert words == [
        f"pushing: final to {TO}", f"push cut short: final to {TO}", f"push failed: final to {TO}",
        f"pushing: final to {TO}", "pushed to P",
    ]  # fmt: skip
