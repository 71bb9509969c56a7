"""`ftui attach`: which run is meant, and its facts as lines."""

import io
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import msgspec
import pytest

from ftui.cli import attach, main
from ftui.cli.attach import attach_plain, run_to_attach
from ftui.errors import UsageError
from ftui.runs.events import RunStopped
from ftui.runs.journal import encode
from ftui.runs.run_folder import Run, runs_root
from ftui.runs.status import read_status
from ftui.system.process_id import identity_of
from tests.support.replayed import replay


def test_the_newest_that_lives_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("full-parked", "exploded", "wiki-style-finished"):
        replay(name, runs_root())
    assert run_to_attach("full-parked").name == "full-parked"
    newest = max(("full-parked", "exploded", "wiki-style-finished"), key=lambda n: opened(n))
    assert run_to_attach(None).name == newest
    replay("wiki-style-held", runs_root(), living=True)
    assert run_to_attach(None).name == "wiki-style-held"


def opened(name: str) -> float:
    return Run(runs_root() / name).read_facts().created


def test_without_a_run_it_says_so() -> None:
    with pytest.raises(UsageError, match="no run to attach to"):
        run_to_attach(None)
    with pytest.raises(UsageError, match="no run named"):
        run_to_attach("nothing")


@pytest.mark.parametrize(("name", "code", "words"), [
    ("wiki-style-finished", 0, "finished · step 645/645"), ("full-parked", 11, "parked · step 150/300"),
    ("exploded", 43, "error: exploded: 3 steps in a row"), ("killed-by-host", 21, "ended without writing why"),
])  # fmt: skip
def test_a_run_that_has_ended_is_told_and_left(
    name: str, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(name, runs_root())
    assert main.main(["attach", name, "--plain"]) == code
    lines = capsys.readouterr().out
    assert lines.startswith("run") and words in lines
    assert "eval loss" in lines and "checkpoint" in lines


def test_without_a_terminal_it_is_plain_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    replay("full-parked", runs_root())
    assert main.main(["attach", "full-parked"]) == 11
    assert "parked" in capsys.readouterr().out


def test_a_living_run_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    run = replay("wiki-style-lora", runs_root(), process=identity_of(process.pid))
    state = read_status(run).state
    monkeypatch.setattr(attach, "LOOK_SECONDS", 0.05)

    def end(seconds: float) -> None:
        record = RunStopped(step=500, reason="on request", exit_code=11, attempt=state.attempt, token=state.token)
        with run.journal.open("ab") as file:
            file.write(encode(record))
        process.kill()
        process.wait()

    monkeypatch.setattr(time, "sleep", end)
    output = io.StringIO()
    with redirect_stdout(output):
        assert attach_plain(run) == 11
    assert "wiki-style-lora: parked" in output.getvalue()


def test_ctrl_c_leaves_it_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = replay("wiki-style-lora", runs_root(), living=True)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    assert attach_plain(run) == 130
    assert "Detached" in capsys.readouterr().out
    assert not list(run.folder.glob("inbox/*"))


def test_a_damaged_run_json_does_not_end_the_search(tmp_path: Path) -> None:
    run = replay("full-parked", runs_root())
    broken = runs_root() / "broken"
    broken.mkdir()
    (broken / "run.json").write_bytes(msgspec.json.encode({"run_id": 3}))
    assert run_to_attach(None) == run
