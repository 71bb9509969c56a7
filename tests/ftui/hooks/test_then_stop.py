"""The machine is stopped only with everything on record, by nobody twice, and not while anything else runs."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.errors import LostRunError, UsageError
from ftui.hooks import then_stop as chain
from ftui.hooks.keep_machine import go_on_to_stop, keep_machine
from ftui.runs.events import RunFinished, RunStopped
from ftui.runs.journal import Tail
from ftui.runs.manifest import Manifest, read_manifest, write_manifest
from ftui.runs.records.hook_records import (
    JOURNAL,
    HookEnded,
    StopBegan,
    StopCancelled,
    StopEnded,
    StopPlanned,
    StopWaits,
)
from ftui.runs.records.push_records import PushBegan, Pushed
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.system.files import try_lock
from ftui.system.process_id import this_process
from tests.ftui.supervisor.test_supervisor import able, in_another_process, until
from tests.support.replayed import write_summaries

STOP = 'then_stop = ["sh", "-c", "echo stopped >> stopped"]\nthen_stop_after = ["finished"]\nthen_stop_seconds = 0.3\n'
TO = "hub:us/mine"


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(chain, "WAIT_SECONDS", 0.02)


@pytest.fixture
def run(make_run: Any, append: Any) -> Run:
    """One that has finished, with a result."""
    made: Run = make_run("mine")
    made.profile.write_text(f"[hooks]\n{STOP}")
    made.hooks.mkdir()
    make_final(made)
    append(made.journal, RunFinished(step=9, reason="", final="final"), attempt=1)
    append(made.supervisor_log, EngineEnded(code=0, signal=None, oom_kills=None, last_lines=[]), attempt=1)
    return made


def make_final(run: Run) -> None:
    run.final.mkdir()
    manifest = Manifest(
        run_id="0011223344556677", attempt=1, token="t", step=9, versions={}, fingerprints={}, dtypes={}, finite=True,
        created=1.0,
    )  # fmt: skip
    write_manifest(run.final, manifest)


def pushed(run: Run, *, verified: bool = True, seal: str | None = None, to: str = TO) -> Pushed:
    seal = read_manifest(run.final).seal if seal is None else seal
    return Pushed(to=to, what="final", seal=seal, place="P", num_files=1, num_bytes=1, verified=verified)


def with_push(run: Run) -> None:
    run.profile.write_text(f'[push]\nto = "{TO}"\n[hooks]\n{STOP}')


def has_stopped(run: Run) -> bool:
    return (run.folder / "stopped").exists()


def kinds(run: Run) -> list[type]:
    return [type(record) for record in Tail(run.hooks / JOURNAL).read()]


def test_a_run_that_has_finished_stops_its_machine_once(run: Run) -> None:
    assert go_on_to_stop(run) == "The command that stops this machine has run."
    assert kinds(run) == [StopPlanned, StopBegan, StopEnded]
    assert "has run before" in go_on_to_stop(run)
    assert (run.folder / "stopped").read_text() == "stopped\n"


def test_one_whose_command_fails_says_so(run: Run) -> None:
    run.profile.write_text("[hooks]\n" + STOP.replace("echo stopped >> stopped", "exit 4"))
    assert "ended with exit code 4" in go_on_to_stop(run)
    stop = read_status(run).state.machine_stop
    assert stop is not None and stop.words() == "failed: ended with exit code 4"


def test_other_endings_stop_nothing(make_run: Any, append: Any) -> None:
    run: Run = make_run("mine")
    run.profile.write_text(f"[hooks]\n{STOP}")
    append(run.journal, RunStopped(step=9, reason="", exit_code=10), attempt=1)
    append(run.supervisor_log, EngineEnded(code=10, signal=None, oom_kills=None, last_lines=[]), attempt=1)
    assert "does not name a run that is stopped" in go_on_to_stop(run) and not has_stopped(run)


@pytest.mark.parametrize("what", ["nothing", "another target", "another result", "not verified"])
def test_what_is_required_must_be_on_record(what: str, run: Run, append: Any) -> None:
    with_push(run)
    records = {
        "nothing": [], "another target": [pushed(run, to="hub:us/other")], "another result": [pushed(run, seal="old")],
        "not verified": [pushed(run, verified=False)],
    }  # fmt: skip
    append(run.pushes, *records[what])
    assert "The machine stays" in go_on_to_stop(run) and not has_stopped(run)
    assert kinds(run) == [StopCancelled]
    append(run.pushes, pushed(run))
    go_on_to_stop(run)
    assert has_stopped(run), "`ftui push` and `ftui then-stop` go on"


def test_a_push_that_is_under_way_is_waited_for(run: Run, append: Any) -> None:
    with_push(run)
    append(run.pushes, PushBegan(to=TO, what="final", seal="s", process=this_process()))
    thread = threading.Thread(target=go_on_to_stop, args=(run,))
    thread.start()
    until(lambda: StopWaits in kinds(run))
    append(run.pushes, pushed(run))
    thread.join()
    assert has_stopped(run)


def test_a_hook_can_be_required(run: Run, append: Any) -> None:
    run.profile.write_text(f'[hooks]\n{STOP}then_stop_requires = ["hooks"]\n')
    append(run.hooks / JOURNAL, HookEnded(event="ended", step=9, seconds=1.0, problem="exit code 1"), attempt=1)
    assert "hooks.ended" in go_on_to_stop(run) and not has_stopped(run)
    append(run.hooks / JOURNAL, HookEnded(event="ended", step=9, seconds=1.0), attempt=1)
    go_on_to_stop(run)
    assert has_stopped(run)


def test_it_waits_for_another_run_also_in_its_countdown(run: Run, make_run: Any, append: Any) -> None:
    run.profile.write_text(f"[hooks]\n{STOP.replace('0.3', '60')}")
    thread = threading.Thread(target=go_on_to_stop, args=(run,))
    thread.start()
    until(lambda: kinds(run) == [StopPlanned])
    other: Run = make_run("other")
    append(other.supervisor_log, EngineStarted(identity=this_process()), attempt=1)
    until(lambda: kinds(run) == [StopPlanned, StopWaits])
    waits = Tail(run.hooks / JOURNAL).read()[-1]
    assert isinstance(waits, StopWaits) and waits.reason == "other is running"
    append(other.journal, RunFinished(step=9, reason="", final="final"), attempt=1)
    other.folder.rename(other.folder.parent.with_name("gone"))
    until(lambda: kinds(run)[2:] == [StopPlanned])
    assert keep_machine(run) == "The machine stays."
    thread.join()
    assert not has_stopped(run)


def test_a_countdown_is_cancelled_by_a_word_or_by_a_resume(run: Run, append: Any) -> None:
    run.profile.write_text(f"[hooks]\n{STOP.replace('0.3', '60')}")
    with pytest.raises(UsageError, match="not about to stop"):
        keep_machine(run)
    thread = threading.Thread(target=go_on_to_stop, args=(run,))
    thread.start()
    until(lambda: kinds(run) == [StopPlanned])
    with pytest.raises(LostRunError):
        go_on_to_stop(run)
    write_summaries(run, time=time.time(), supervisor=this_process())
    thread.join()
    assert not has_stopped(run)
    cancelled = Tail(run.hooks / JOURNAL).read()[-1]
    assert isinstance(cancelled, StopCancelled) and cancelled.reason == "mine goes on"


PUSH = """
import json, os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from ftui.runs.journal import encode
from ftui.runs.manifest import read_manifest
from ftui.runs.records.push_records import PushBegan, Pushed
from ftui.system.process_id import this_process
folder = Path(sys.argv[1])
seal = read_manifest(folder / 'final').seal
def write(record):
    import msgspec
    with open(folder / 'pushes.jsonl', 'ab') as file:
        file.write(encode(msgspec.structs.replace(record, time=time.time())))
write(PushBegan(to={to!r}, what='final', seal=seal, process=this_process()))
time.sleep(0.1)
write(Pushed(to={to!r}, what='final', seal=seal, place='P', num_files=1, num_bytes=1, verified=True))
"""


def victims(run: Run) -> list[int]:
    """The supervisor, the push and the hooks of this run, by their command lines."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(run.folder) in words and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the processes in /proc")
def test_whoever_is_killed_it_stops_after_the_push_and_once(make_run: Any, request: pytest.FixtureRequest) -> None:
    """Supervisor, push and hooks are killed at any moment; `ftui push` and `ftui then-stop` go on."""
    number = request.config.getoption("--trials") or 4
    assert sum(killed_somewhere(make_run(f"run-{trial}"), random.Random(trial)) for trial in range(number)) > 0


def killed_somewhere(run: Run, chance: random.Random) -> bool:
    """Whether it came to its end."""
    commands = 'ended = ["sh", "-c", "echo ended >> ended"]\n' + STOP.replace("echo stopped", "date +%s.%N")
    run.profile.write_text(f'[push]\nto = "{TO}"\n[hooks]\n{commands}')
    make_final(run)
    code = PUSH.format(root=str(Path(__file__).parents[3]), to=TO)
    settings = f"from ftui.supervisor import push_at_end\npush_at_end.COMMAND = (sys.executable, '-c', {code!r})"
    process = in_another_process(run, able("finish()"), settings)
    until(lambda: run.hooks.is_dir() or process.poll() is not None)
    time.sleep(chance.uniform(0.0, 3.0))
    found = victims(run)
    for pid in chance.sample(found, k=min(len(found), chance.randint(1, 2))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(60)
    until(lambda: not victims(run))
    check_chain(run)
    if read_status(run).state.exit_code is None:
        return False
    subprocess.run([sys.executable, "-c", code, str(run.folder)], check=True, timeout=60)
    go_on_to_stop(run)
    return check_chain(run)


def check_chain(run: Run) -> bool:
    """Whether it has stopped: after a verified push, and once, as its hook ran at most once."""
    lines = (run.folder / "stopped").read_text().splitlines() if has_stopped(run) else []
    assert len(lines) <= 1
    ended = run.folder / "ended"
    assert not ended.exists() or ended.read_text() == "ended\n"
    if lines:
        verified = [one.time for one in Tail(run.pushes).read() if isinstance(one, Pushed) and one.verified]
        assert verified and min(verified) < float(lines[0])
    return bool(lines)


def test_nobody_but_the_holder_of_the_lock_goes_on(run: Run) -> None:
    lock = try_lock(run.hooks / "lock")
    assert lock is not None
    with pytest.raises(LostRunError, match="Another process"):
        go_on_to_stop(run)
    lock.close()
    assert msgspec.json.encode(read_status(run).state.machine_stop) == b"null"
