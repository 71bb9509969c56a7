"""The supervisor with a small script in the engine's place."""

import contextlib
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

from ftui.runs.journal import Tail
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.records.supervisor_records import Adopted, EngineEnded, EngineStarted, Restarting, Stalled
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, read_status
from ftui.supervisor import attempt, stall
from ftui.supervisor import supervise as supervisor
from ftui.supervisor.attempt import last_lines
from ftui.supervisor.engine_process import LOST_RANK, signal_name
from ftui.supervisor.supervise import engine_command, main, supervise
from ftui.system.files import try_lock
from ftui.system.process_id import identity_of, is_alive

# What every fake engine can do: write records as the real one does, and beat.
PREAMBLE = """
import json, os, signal, sys, time
ATTEMPT, TOKEN = int(os.environ["FTUI_ATTEMPT"]), os.environ["FTUI_TOKEN"]
def write(file, **record):
    stamped = dict(v=1, time=time.time(), attempt=ATTEMPT, token=TOKEN, **record)
    with open(file, "a") as f: f.write(json.dumps(stamped) + "\\n")
def step(n):
    write("metrics.jsonl", kind="step", step=n, epoch=0.1, loss=1.0, learning_rate=1e-4, grad_norm=1.0, num_tokens=1,
          num_target_tokens=1, tokens_per_second=1.0, data_seconds=0, forward_backward_seconds=0, optimizer_seconds=0,
          rest_seconds=0)
def verified(n): write("journal.jsonl", kind="checkpoint_verified", step=n)
def beat(n, phase="training"):
    with open("beat.tmp", "w") as f: json.dump(dict(kind="beat", v=1, time=time.time(), attempt=ATTEMPT, token=TOKEN,
        phase=phase, step=0, micro_step=0, progress=n), f)
    os.rename("beat.tmp", "beat.json")
def finish():
    write("journal.jsonl", kind="run_finished", step=1, reason="", final="final"); sys.exit(0)
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
def run(make_run: Any) -> Run:
    made: Run = make_run("mine")
    return made


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses before restarts are as good as none; each is still recorded at its full length."""
    monkeypatch.setattr(supervisor, "PACE", 0.02)


def engine(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def able(code: str) -> list[str]:
    return engine(PREAMBLE + code)


def sampled(run: Run, times: int) -> str:
    """An engine that ends when its hardware has been sampled so often."""
    until = f"while open({str(run.telemetry)!r}).read().count('\\n') < {times}: time.sleep(0.01)"
    return f"import time\n{until}\nraise SystemExit(31)"


def records(run: Run, kind: type) -> list[Any]:
    return [record for record in Tail(run.supervisor_log).read() if isinstance(record, kind)]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def in_another_process(run: Run, command: list[str], settings: str = "") -> "subprocess.Popen[bytes]":
    code = f"""
import sys
from pathlib import Path
from ftui.supervisor import attempt, stall
from ftui.supervisor import supervise as supervisor
from ftui.runs.run_folder import Run
{settings}
supervisor.supervise(Run(Path({str(run.folder)!r})), {command!r})
"""
    return subprocess.Popen([sys.executable, "-P", "-c", code], start_new_session=True)


def ending(run: Run) -> EngineEnded:
    record = Tail(run.supervisor_log).read()[-1]
    assert isinstance(record, EngineEnded)
    return record


def test_the_real_engine_is_a_module_of_this_python(run: Run) -> None:
    assert engine_command(run) == [sys.executable, "-P", "-m", "ftui.engine", str(run.folder)]


def test_an_engine_that_ends_by_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("FTUI_NODE_SECRET", "nothing to an engine")
    code = (
        "import os, sys; print('out', flush=True); print('err', file=sys.stderr);"
        "print(os.environ['FTUI_ATTEMPT'], len(os.environ['FTUI_TOKEN']),"
        "      {'ACCELERATE_MIXED_PRECISION', 'FTUI_NODE_SECRET'} & {*os.environ});"
        "print(os.getpgrp() == os.getpid(), os.getcwd(), sys.stdin.read() == ''); sys.exit(31)"
    )
    supervise(run, engine(code))
    started, ended = Tail(run.supervisor_log).read()
    assert isinstance(started, EngineStarted) and isinstance(ended, EngineEnded)
    assert (ended.code, ended.signal, ended.attempt) == (31, None, 1)
    assert started.token == ended.token and len(ended.token) == 16
    assert {"out", "err", "1 16 set()", f"True {run.folder} True"} == set(ended.last_lines)
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
    assert ended.attempt == 2  # the second time at the same step ends it
    assert "SIGKILL" in read_status(run).state.message


def test_attempts_count_up_and_their_outputs_stay_apart(run: Run) -> None:
    supervise(run, engine("import sys; print('first'); sys.exit(31)"))
    supervise(run, engine("import sys; print('second'); sys.exit(31)"))
    assert ending(run).attempt == 2
    assert ending(run).last_lines == ["second"]
    assert run.engine_log.read_text() == "first\nsecond\n"


def test_hardware_is_sampled_and_every_line_can_be_read(run: Run) -> None:
    supervise(run, engine(sampled(run, 2)))
    tail = Tail(run.telemetry)
    samples = tail.read()
    assert len(samples) >= 2
    assert (tail.num_damaged, tail.num_unknown) == (0, 0)
    for record in samples:
        assert isinstance(record, Telemetry)
        assert record.memory_total and record.engine_memory
        assert record.attempt == 1 and record.token
    assert isinstance(samples[1], Telemetry) and samples[1].cpu_utilization is not None


def test_a_termination_is_passed_on_and_waited_for(run: Run) -> None:
    code = (
        "import signal, sys, time\n"
        "def leave(*_):\n"
        "    time.sleep(0.3); print('saved'); sys.exit(20)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        f"open({str(run.folder / 'ready')!r}, 'w').close()\n"
        "time.sleep(30)\n"
    )
    watcher = in_another_process(run, engine(code))
    while not (run.folder / "ready").exists():
        assert watcher.poll() is None, "the supervisor did not even start its engine"
        time.sleep(0.02)
    watcher.send_signal(signal.SIGHUP)
    watcher.terminate()
    assert watcher.wait(60) == 0
    assert (ending(run).code, ending(run).last_lines) == (20, ["saved"])


def test_what_goes_wrong_on_another_rank_is_the_run_s_last_word(run: Run) -> None:
    """Its words are quoted from engine.log: it writes no records."""
    run.profile.write_text("[hardware]\nnum_processes = 2\n")
    act = "print('rank 1 failed: It sees no GPU.', flush=True); sys.exit(33)"
    supervise(run, engine(f"import os, sys\nif os.environ['RANK'] == '0': sys.exit({LOST_RANK})\n{act}"))
    state = read_status(run).state
    assert (state.exit_code, state.message) == (33, "rank 1 failed: It sees no GPU.")


def test_a_second_supervisor_leaves_quietly(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lock = try_lock(run.supervisor_lock)
    assert lock is not None
    assert main([str(run.folder)]) == 0
    lock.close()
    assert not run.supervisor_log.exists()
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "not a readable run" in capsys.readouterr().err
    assert main([]) == main([str(tmp_path), "x"]) == main([str(tmp_path), "1", "2"]) == 2


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
    assert last_lines(log, log.stat().st_size + 1)[-1] == "\\xff end"  # begun anew: all of it counts
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
from ftui.runs.run_folder import Run
from ftui.supervisor.supervise import supervise
engine = "import time; time.sleep(1.2); raise SystemExit(31)"
supervise(Run(Path({str(run.folder)!r})), [sys.executable, "-S", "-c", engine])
print(sorted({{"pydantic", "torch", "numpy", "tomlkit"}} & set(sys.modules)))
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    output = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    modules, most_kibibytes = output.splitlines()
    assert modules == "[]"
    assert int(most_kibibytes) <= 30 * 1024


def test_crashes_at_other_steps_are_followed_by_restarts(run: Run) -> None:
    supervise(run, able("step(ATTEMPT)\nif ATTEMPT == 3: finish()\nos.abort()"))
    restarts = records(run, Restarting)
    assert [(r.attempt, r.step, r.error, r.number, r.pause_seconds) for r in restarts] == [
        (1, 1, "SIGABRT", 1, 1.0),
        (2, 2, "SIGABRT", 2, 2.0),
    ]
    assert len({record.token for record in records(run, EngineStarted)}) == 3
    state = read_status(run).state
    assert (state.phase, state.attempt, state.exit_code, state.restarting) == ("finished", 3, 0, False)


def test_the_same_crash_twice_ends_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    supervise(run, able("step(7); sys.exit(1)"))
    assert [r.step for r in records(run, Restarting)] == [7]
    assert "a second time at step 7" in capsys.readouterr().err
    state = read_status(run).state
    assert (state.phase, state.attempt, state.exit_code) == ("failed", 2, 70)


def test_an_engine_says_itself_that_another_attempt_may_succeed(run: Run) -> None:
    failed = "write('journal.jsonl', kind='run_failed', message='m', hint='', exit_code=41, error='e', again=True)"
    supervise(run, able(f"if ATTEMPT == 2: finish()\n{failed}; sys.exit(41)"))
    assert [r.error for r in records(run, Restarting)] == ["e"]
    assert read_status(run).state.phase == "finished"


def test_five_restarts_in_a_row_are_the_most(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    supervise(run, able("step(ATTEMPT); sys.exit(1)"))
    assert [r.number for r in records(run, Restarting)] == [1, 2, 3, 4, 5]
    assert [r.pause_seconds for r in records(run, Restarting)] == [1, 2, 4, 8, 16]
    assert "5 restarts in a row" in capsys.readouterr().err


def test_a_verified_checkpoint_begins_a_new_count(run: Run) -> None:
    supervise(run, able("step(ATTEMPT)\nif ATTEMPT == 3: verified(3)\nif ATTEMPT == 4: sys.exit(31)\nsys.exit(1)"))
    assert [r.number for r in records(run, Restarting)] == [1, 2, 1]


def test_the_memory_an_engine_held_is_recorded(run: Run) -> None:
    supervise(run, engine(sampled(run, 1)))
    assert ending(run).engine_memory and ending(run).memory_total


def test_after_sigterm_there_is_no_restart(run: Run) -> None:
    ready = run.folder / "ready"
    watcher = in_another_process(run, able(f"signal.pause() if open({str(ready)!r}, 'w') else 0"))
    until(ready.exists)
    watcher.terminate()
    assert watcher.wait(60) == 0
    assert (ending(run).signal, records(run, Restarting)) == ("SIGTERM", [])


def test_sigterm_ends_the_wait_for_a_restart(run: Run) -> None:
    watcher = in_another_process(run, able("sys.exit(1)"), "supervisor.PACE = 60")
    until(lambda: records(run, Restarting))
    waiting = read_status(run).state
    assert (waiting.phase, waiting.exit_code, waiting.restarting) == ("starting", None, True)
    watcher.terminate()
    assert watcher.wait(60) == 0
    assert len(records(run, EngineStarted)) == 1


def test_an_engine_without_a_supervisor_is_adopted(run: Run) -> None:
    code = f"step(1)\nwhile not os.path.exists({str(run.folder / 'end')!r}): time.sleep(0.02)\nfinish()"
    first = in_another_process(run, able(code))
    until(lambda: records(run, EngineStarted) and run.metrics.exists())
    first.kill()
    first.wait()
    assert read_status(run).unwatched
    second = in_another_process(run, able("sys.exit(31)"))
    until(lambda: records(run, Adopted) and not read_status(run).unwatched)
    (run.folder / "end").touch()
    assert second.wait(60) == 0
    started, adopted, ended = Tail(run.supervisor_log).read()
    assert isinstance(started, EngineStarted) and isinstance(adopted, Adopted) and isinstance(ended, EngineEnded)
    assert started.identity == adopted.identity
    assert (ended.code, ended.signal, ended.attempt, ended.token) == (None, None, 1, started.token)
    assert read_status(run).state.phase == "finished"


def test_an_adopted_engine_is_sent_sigterm_and_started_again_after_a_crash(run: Run) -> None:
    code = f"open({str(run.folder / 'ready')!r} + str(ATTEMPT), 'w'); signal.pause()"
    first = in_another_process(run, able(code))
    until((run.folder / "ready1").exists)
    first.kill()
    first.wait()
    second = in_another_process(run, able(code), "supervisor.PACE = 0.02")
    until(lambda: records(run, Adopted))
    os.kill(records(run, Adopted)[0].identity.pid, signal.SIGKILL)
    until((run.folder / "ready2").exists)
    second.terminate()
    assert second.wait(60) == 0
    assert [r.error for r in records(run, Restarting)] == ["exit code unknown"]
    assert ending(run).signal == "SIGTERM"


@pytest.fixture
def impatience(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stalls within fractions of a second."""
    run.profile.write_text("[health]\nstall_minutes = 0.005\n")
    monkeypatch.setattr(attempt, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(stall, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(stall, "TIMES_THE_MEDIAN", 3)


BEATING = "for n in range(12): beat(n); time.sleep(0.06)\n"


@pytest.mark.usefixtures("impatience")
def test_a_stalled_engine_is_killed_and_started_again(run: Run) -> None:
    stacks = "import faulthandler; faulthandler.register(signal.SIGUSR1)\n"
    supervise(run, able(f"if ATTEMPT == 2: finish()\n{stacks}{BEATING}time.sleep(30)"))
    (stalled,) = records(run, Stalled)
    assert stalled.phase == "training" and stalled.seconds > stalled.limit_seconds >= 0.3
    first = records(run, EngineEnded)[0]
    assert first.stalled and first.signal == "SIGKILL" and any("<module>" in line for line in first.last_lines)
    assert [r.error for r in records(run, Restarting)] == ["stalled"]
    assert read_status(run).state.phase == "finished"


@pytest.mark.usefixtures("impatience")
def test_an_engine_that_was_stopped_by_a_signal_is_not_stalled(run: Run) -> None:
    pid = run.folder / "pid"
    run.profile.write_text("[health]\nstall_minutes = 0.02\n")  # longer than a busy machine takes from beat to beat
    settings = "attempt.TICK_SECONDS = 0.05; stall.TIMES_THE_MEDIAN = 3"
    code = f"{BEATING}open({str(pid)!r}, 'w').write(str(os.getpid()))\nos.kill(os.getpid(), signal.SIGSTOP)\nfinish()"
    watcher = in_another_process(run, able(code), settings)
    until(lambda: read_status(run).frozen)
    time.sleep(2.0)
    assert records(run, Stalled) == []
    os.kill(int(pid.read_text()), signal.SIGCONT)
    assert watcher.wait(60) == 0
    assert read_status(run).state.phase == "finished"


def test_what_an_engine_leaves_in_its_group_is_killed_and_nothing_else(run: Run) -> None:
    code = """
import subprocess
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
inside, outside = subprocess.Popen(sleep), subprocess.Popen(sleep, process_group=0)
open("pids", "w").write(f"{inside.pid} {outside.pid}")
time.sleep(0.3)
os._exit(31)
"""
    supervise(run, able(code))
    inside, outside = map(int, (run.folder / "pids").read_text().split())
    try:
        until(lambda: identity_of(inside) is None)
        assert is_alive(identity_of(outside))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(outside, signal.SIGKILL)


def test_the_lock_is_handed_over(run: Run) -> None:
    lock = try_lock(run.supervisor_lock)
    assert lock is not None
    code = f"""
import os
from ftui.supervisor import supervise as supervisor
supervisor.engine_command = lambda run: {able("sys.exit(31)")!r}
code = supervisor.main([{str(run.folder)!r}, "{lock.descriptor}"])
assert not os.get_inheritable({lock.descriptor})
raise SystemExit(code)
"""
    assert main([str(run.folder)]) == 0 and not run.supervisor_log.exists()
    assert subprocess.run([sys.executable, "-P", "-c", code], pass_fds=[lock.descriptor]).returncode == 0
    os.close(lock.descriptor)
    assert ending(run).code == 31
