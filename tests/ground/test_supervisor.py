"""The supervisor with a small script in the engine's place."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.events import EngineEnded, EngineStarted, Telemetry
from ftui.files import try_lock
from ftui.journal import Tail
from ftui.run import Run
from ftui.status import Status, read_status
from ftui.supervisor import engine_command, last_lines, main, signal_name, supervise

Script = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def signals() -> Any:
    """`supervise` takes over two signals of the process it runs in."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    return made


def engine(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def ending(run: Run) -> EngineEnded:
    record = Tail(run.supervisor_log).read()[-1]
    assert isinstance(record, EngineEnded)
    return record


def test_the_real_engine_is_a_module_of_this_python(run: Run) -> None:
    assert engine_command(run) == [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]


def test_an_engine_that_ends_by_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    code = (
        "import os, sys; print('out', flush=True); print('err', file=sys.stderr);"
        "print(os.environ['FTUI_ATTEMPT'], len(os.environ['FTUI_TOKEN']), 'ACCELERATE_MIXED_PRECISION' in os.environ);"
        "print(os.getpgrp() == os.getpid(), os.getcwd(), sys.stdin.read() == ''); sys.exit(31)"
    )
    begun = time.monotonic()
    supervise(run, engine(code))
    assert time.monotonic() - begun < 3
    started, ended = Tail(run.supervisor_log).read()
    assert isinstance(started, EngineStarted) and isinstance(ended, EngineEnded)
    assert (ended.code, ended.signal, ended.attempt) == (31, None, 1)
    assert started.token == ended.token and len(ended.token) == 16
    assert {"out", "err", "1 16 False", f"True {run.folder} True"} == set(ended.last_lines)
    assert run.engine_log.read_text().count("\n") == 4
    assert run.engine_log.stat().st_mode & 0o777 == 0o600


def test_the_final_status_is_complete(run: Run) -> None:
    supervise(run, engine("import sys; sys.exit(31)"))
    status = msgspec.json.decode(run.status.read_bytes(), type=Status)
    assert (status.state.phase, status.state.exit_code, status.state.attempt) == ("failed", 31, 1)
    assert status.supervisor is not None and status.supervisor.pid == os.getpid()
    assert status.engine is not None and status.engine == status.state.engine
    assert status.offsets.supervisor == run.supervisor_log.stat().st_size
    assert not list(run.folder.glob(".*.tmp"))


def test_a_killed_engine_is_told_by_its_signal(run: Run) -> None:
    supervise(run, engine("import os; print('last', flush=True); os.kill(os.getpid(), 9)"))
    ended = ending(run)
    assert (ended.code, ended.signal, ended.last_lines) == (None, "SIGKILL", ["last"])
    assert "SIGKILL" in read_status(run).state.message


def test_attempts_count_up_and_their_outputs_stay_apart(run: Run) -> None:
    supervise(run, engine("print('first')"))
    supervise(run, engine("print('second')"))
    assert ending(run).attempt == 2
    assert ending(run).last_lines == ["second"]
    assert run.engine_log.read_text() == "first\nsecond\n"


def test_hardware_is_sampled_and_every_line_can_be_read(run: Run) -> None:
    supervise(run, engine("import time; time.sleep(1.4)"))
    tail = Tail(run.telemetry)
    records = tail.read()
    assert len(records) == 2
    assert (tail.num_damaged, tail.num_unknown) == (0, 0)
    for record in records:
        assert isinstance(record, Telemetry)
        assert record.memory_total and record.engine_memory
        assert record.attempt == 1 and record.token
    assert isinstance(records[1], Telemetry) and records[1].cpu_utilization is not None


def test_a_termination_is_passed_on_and_waited_for(run: Run) -> None:
    code = (
        "import signal, sys, time\n"
        "def leave(*_):\n"
        "    time.sleep(0.3); print('saved'); sys.exit(20)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        f"open({str(run.folder / 'ready')!r}, 'w').close()\n"
        "time.sleep(30)\n"
    )
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            f"""
import sys
from pathlib import Path
from ftui.run import Run
from ftui.supervisor import supervise
supervise(Run(Path({str(run.folder)!r})), {engine(code)!r})
""",
        ]
    )
    while not (run.folder / "ready").exists():
        assert supervisor.poll() is None, "the supervisor did not even start its engine"
        time.sleep(0.02)
    supervisor.send_signal(signal.SIGHUP)
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    assert (ending(run).code, ending(run).last_lines) == (20, ["saved"])


def test_a_second_supervisor_leaves_quietly(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lock = try_lock(run.supervisor_lock)
    assert lock is not None
    assert main([str(run.folder)]) == 0
    os.close(lock)
    assert not run.supervisor_log.exists()
    assert capsys.readouterr().err == ""


def test_a_living_engine_is_left_alone(run: Run, living: Any, append: Any, capsys: pytest.CaptureFixture[str]) -> None:
    append(run.supervisor_log, EngineStarted(identity=living), attempt=1)
    supervise(run, engine("raise SystemExit(1)"))
    assert len(Tail(run.supervisor_log).read()) == 1
    assert "left alone" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "not a readable run" in capsys.readouterr().err
    assert main([]) == 2


def test_a_full_disk_does_not_end_the_supervision(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    supervise(run, engine("raise SystemExit(0)"))
    monkeypatch.setattr(os, "write", real)
    assert "No space left" in capsys.readouterr().err
    assert not list(run.folder.glob(".*.tmp"))


def test_last_lines_are_few_and_short(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"".join(b"%d %s\n" % (n, b"x" * 600) for n in range(50)) + b"\xff end")
    lines = last_lines(log, 4)
    assert len(lines) == 20
    assert all(len(line) <= 500 for line in lines)
    assert lines[-1] == "\\xff end"
    assert last_lines(log, log.stat().st_size) == []
    assert "cannot be read" in last_lines(tmp_path / "absent", 0)[0]


def test_signals_by_name() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(40) == "signal 40"


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_the_supervisor_stays_small(run: Run) -> None:
    """Measured in a process of its own: no pydantic, no torch, at most 30 MiB."""
    code = f"""
import sys
from pathlib import Path
from ftui.run import Run
from ftui.supervisor import supervise
supervise(Run(Path({str(run.folder)!r})), [sys.executable, "-S", "-c", "import time; time.sleep(1.2)"])
print(sorted({{"pydantic", "torch", "numpy", "tomlkit"}} & set(sys.modules)))
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    output = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    modules, most_kibibytes = output.splitlines()
    assert modules == "[]"
    assert int(most_kibibytes) <= 30 * 1024
