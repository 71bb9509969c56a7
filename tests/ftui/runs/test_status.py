"""Judging a run from hand-written folders alone."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.runs.events import PhaseChanged, RunFinished
from ftui.runs.records.supervisor_records import EngineEnded, EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import Status, Watch, is_final, is_frozen, read_status, run_is_running
from ftui.system.process_id import Identity, identity_of, this_process
from tests.support.events import make_run_started, make_step


@pytest.fixture
def training(make_run: Any, append: Any) -> Any:
    """Makes a run whose engine has that identity and has done two steps."""

    def make(engine: Identity) -> Run:
        run: Run = make_run("mine")
        append(run.supervisor_log, EngineStarted(identity=engine), attempt=1)
        append(run.journal, PhaseChanged(phase="loading"), make_run_started(), attempt=1)
        append(run.metrics, make_step(1), make_step(2))
        return run

    return make


def write_status(run: Run, supervisor: Identity) -> None:
    """What the supervisor would have written by now."""
    watch = Watch(run)
    watch.catch_up()
    status = Status(state=watch.state, supervisor=supervisor, engine=watch.state.engine, offsets=watch.offsets)
    run.status.write_bytes(msgspec.json.encode(status))


def test_a_run_that_was_just_opened_is_queued(make_run: Any) -> None:
    assert read_status(make_run("new")).state.phase == "queued"
    old = make_run("old", created=time.time() - 3600)
    assert read_status(old).state.phase == "lost"
    old.facts.write_bytes(msgspec.json.encode(msgspec.structs.replace(old.read_facts(), queued=True)))
    assert read_status(old).state.phase == "queued", "it waits for a card, however long"


def test_an_engine_without_supervisor_is_alive_and_unwatched(training: Any, living: Identity, dead: Identity) -> None:
    run = training(living)
    status = read_status(run)
    assert (status.state.phase, status.state.step, status.unwatched) == ("training", 2, True)
    assert run_is_running(run)
    write_status(run, supervisor=dead)
    assert read_status(run).unwatched


def test_an_engine_with_supervisor_is_watched(training: Any, living: Identity) -> None:
    run = training(living)
    write_status(run, supervisor=living)
    status = read_status(run)
    assert (status.state.phase, status.unwatched) == ("training", False)


def test_a_supervisor_that_has_yet_to_write_the_ending_still_counts(
    training: Any, living: Identity, dead: Identity
) -> None:
    run = training(dead)
    write_status(run, supervisor=living)
    assert read_status(run).state.phase == "training"
    assert run_is_running(run)


def test_nobody_alive_and_no_ending_is_lost(training: Any, dead: Identity) -> None:
    run = training(dead)
    status = read_status(run)
    assert (status.state.phase, status.state.exit_code, status.state.step) == ("lost", None, 2)
    assert not run_is_running(run)


@pytest.mark.parametrize("change", [{"boot": "another"}, {"namespace": "pid:[1]"}, {"started": "1"}])
def test_a_process_of_another_boot_or_container_is_gone(training: Any, change: dict[str, str]) -> None:
    run = training(msgspec.structs.replace(this_process(), **change))
    assert read_status(run).state.phase == "lost"


def test_an_ending_stands_when_nobody_lives(training: Any, dead: Identity, append: Any) -> None:
    run = training(dead)
    append(run.journal, RunFinished(step=20, reason="done", final="final"), attempt=1)
    assert read_status(run).state.phase == "finished"


def test_a_killed_engine_failed(training: Any, dead: Identity, append: Any) -> None:
    run = training(dead)
    append(run.supervisor_log, EngineEnded(code=None, signal="SIGKILL", oom_kills=0, last_lines=[]), attempt=1)
    assert read_status(run).state.phase == "failed"


def test_a_copied_folder_tells_the_same(training: Any, dead: Identity, tmp_path: Path) -> None:
    run = training(dead)
    write_status(run, supervisor=dead)
    copy = Run(tmp_path / "elsewhere")
    shutil.copytree(run.folder, copy.folder)
    assert read_status(copy).state == read_status(run).state


def test_a_stale_status_is_caught_up_from_where_it_stands(training: Any, dead: Identity, append: Any) -> None:
    run = training(dead)
    write_status(run, supervisor=dead)
    covered = run.metrics.stat().st_size
    append(run.metrics, make_step(3))
    run.metrics.write_bytes(b"\n" * covered + run.metrics.read_bytes()[covered:])  # what it covers is not read again
    assert read_status(run).state.step == 3
    assert read_status(run).offsets.metrics == run.metrics.stat().st_size


@pytest.mark.parametrize("damage", [b"", b"{", b'{"v":99}', b'{"v":2,"offsets":{"metrics":99999999}}', b"[]"])
def test_a_status_that_cannot_be_used_is_rebuilt(training: Any, dead: Identity, damage: bytes) -> None:
    run = training(dead)
    run.status.write_bytes(damage)
    assert read_status(run).state.step == 2


def test_a_missing_record_file_is_rebuilt_from_what_is_left(training: Any, dead: Identity) -> None:
    run = training(dead)
    write_status(run, supervisor=dead)
    run.metrics.unlink()
    assert read_status(run).state.step == 0


def test_a_folder_that_is_hardly_a_run(tmp_path: Path) -> None:
    assert read_status(Run(tmp_path)).state.phase == "lost"


def test_the_news_come_by_time_with_the_state_they_led_to(make_run: Any, append: Any) -> None:
    run = make_run("mine")
    watch = Watch(run)
    append(run.metrics, make_step(1, time=2.0), make_step(2, time=4.0))
    append(run.journal, msgspec.structs.replace(make_run_started(), time=1.0, attempt=1))
    append(run.journal, PhaseChanged(phase="saving", time=3.0, attempt=1))
    news = watch.read()
    assert [(record.time, state.step, state.phase) for record, state in news] == [
        (1.0, 0, "training"),
        (2.0, 1, "training"),
        (3.0, 1, "saving"),
        (4.0, 2, "saving"),
    ]
    assert watch.read() == []


def test_the_status_file_keeps_all_of_the_state(training: Any, living: Identity) -> None:
    run = training(living)
    write_status(run, supervisor=living)
    stored = msgspec.json.decode(run.status.read_bytes(), type=Status)
    assert stored.state == read_status(run).state != RunState()


def test_an_engine_stopped_by_a_signal_is_frozen_not_gone(training: Any) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(30)"])
    try:
        engine = identity_of(process.pid)
        assert engine is not None and not is_frozen(engine)
        run = training(engine)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        status = read_status(run)
        assert (status.frozen, status.state.phase) == (True, "training")
        process.send_signal(signal.SIGCONT)
        while is_frozen(engine):
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not is_frozen(engine)


def test_an_ending_is_final_once_nobody_starts_the_run_again(living: Identity, dead: Identity) -> None:
    crash = RunState(phase="failed", exit_code=70, ended_by="engine")
    assert not is_final(Status(state=RunState(phase="training"), supervisor=dead))
    assert not is_final(Status(state=crash, supervisor=living))
    assert is_final(Status(state=crash, supervisor=dead))
    assert is_final(Status(state=msgspec.structs.replace(crash, phase="finished", exit_code=0), supervisor=living))
