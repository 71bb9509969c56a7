"""Trackers beside a small script in the engine's place: what becomes of those that fail, hang, or run wild."""

import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ftui.runs.events import Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.supervisor import attempt
from ftui.supervisor import trackers as tracking
from ftui.supervisor.settings import read_settings
from ftui.supervisor.supervise import supervise
from ftui.supervisor.trackers import Trackers

STEPS = """
import json, os, sys, time
def write(file, **record):
    stamped = dict(v=1, time=time.time(), attempt=1, token=os.environ["FTUI_TOKEN"], **record)
    with open(file, "a") as f: f.write(json.dumps(stamped) + "\\n")
for n in range(1, 4):
    write("metrics.jsonl", kind="step", step=n, epoch=0.1, loss=n / 7, learning_rate=1e-4, grad_norm=1.0, num_tokens=1,
          num_target_tokens=1, tokens_per_second=1.0, data_seconds=0, forward_backward_seconds=0, optimizer_seconds=0,
          rest_seconds=0)
def is_told(): return open("supervisor.jsonl").read().count('"warned"') >= int(sys.argv[1])
while not is_told() or not all(map(os.path.exists, sys.argv[2:])): time.sleep(0.02)
write("journal.jsonl", kind="run_finished", step=3, reason="", final="final")
"""
FAKE = """
import os, time
class errors:
    class Error(Exception): pass
def teardown(): pass
class Settings:
    def __init__(self, **values): pass
def init(**values):
    {init}
"""
RUN_WILD = """
    with open(os.path.join(os.environ["TRACKIO_DIR"], "big"), "wb", buffering=0) as file:
        file.seek((1 << 30) - 5000)
        while True: file.write(bytes(1000))
"""


@pytest.fixture(autouse=True)
def signals() -> Any:
    """`supervise` takes over two signals of the process it runs in."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(attempt, "TICK_SECONDS", 0.2)
    made: Run = make_run("mine")
    return made


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a library of that name before the real one."""
    folder = tmp_path / "fakes"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return lambda name, init: (folder / f"{name}.py").write_text(FAKE.format(init=init))


def train(run: Run, report_to: str, num_warnings: int, *files: Path) -> list[str]:
    """Train until there were so many warnings and these files are there; all that was warned of in the end."""
    run.profile.write_text(f"[log]\nreport_to = {report_to}\n")
    supervise(run, [sys.executable, "-S", "-c", STEPS, str(num_warnings), *map(str, files)])
    assert read_status(run).state.phase == "finished"
    return [record.message for record in Tail(run.supervisor_log).read() if isinstance(record, Warned)]


@pytest.mark.parametrize(
    "toml, names",
    [
        ('[log]\nreport_to = ["wandb", "tensorboard", "ours", "../x", 3]', ("wandb", "tensorboard", "ours")),
        ('[log]\nreport_to = "trackio"', ("trackio",)),
        ('[log]\nreport_to = "none"', ()),
        ("[log]\nreport_to = 3", ()),
        ("log = 3", ()),
        ("[log", ()),
        ("", ()),
    ],
)
def test_which_trackers_a_profile_names(run: Run, toml: str, names: tuple[str, ...]) -> None:
    run.profile.write_text(toml)
    assert read_settings(run).trackers == names


def test_without_a_profile_there_are_none(run: Run) -> None:
    trackers = Trackers(run, read_settings(run).trackers)
    assert (trackers.look(), trackers.finish(), run.trackers.exists()) == ([], [], False)


def test_a_tracker_gets_the_last_steps_too(run: Run) -> None:
    pytest.importorskip("tensorboard")
    assert train(run, '"tensorboard"', 0) == []  # it has not even started when the run ends
    written = next((run.trackers / "tensorboard").iterdir()).read_bytes()
    assert written.count(b"train/loss") == 3
    assert run.trackers.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in run.trackers.glob("*.*")} == {0o600}


def test_those_that_fail_are_told_of_once(run: Run, fake: Any) -> None:
    """One raises, one writes until it may not any more."""
    fake("wandb", "raise RuntimeError('no login')")
    fake("trackio", RUN_WILD)
    warned = sorted(train(run, '["wandb", "trackio"]', 2))
    assert len(warned) == 2, warned
    assert warned[0].startswith("trackio has failed: OSError: [Errno 27] File too large")
    assert warned[1] == "wandb has failed: RuntimeError: no login. The run continues without it."
    assert read_status(run).state.warning in warned
    assert (run.trackers / "trackio" / "big").stat().st_size == 1 << 30


@pytest.mark.filterwarnings("ignore:.*Popen.__del__:pytest.PytestUnraisableExceptionWarning")  # it is left to itself
def test_nobody_waits_for_one_that_hangs(run: Run, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "STILL_SECONDS", 0.5)
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.5)
    fake("wandb", f"open({str(run.folder / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    warned = train(run, '"wandb"', 1, run.folder / "pid")
    assert warned[0] == "wandb has taken nothing for 0 s. The run does not wait for it."
    assert warned[1].startswith("wandb has not taken all of the run yet: it continues for 30 s at most")
    assert len(warned) == 2
    hanging = psutil.Process(int((run.folder / "pid").read_text()))
    assert hanging.status() != psutil.STATUS_ZOMBIE
    hanging.kill()


def test_one_that_cannot_be_started_is_told_of(run: Run) -> None:
    run.trackers.write_text("in the way")
    assert train(run, '"wandb"', 1) == [
        f"wandb could not be started: {run.trackers} is a plain file and should be a folder: "
        "ftui writes nothing there. The run continues without it."
    ]
