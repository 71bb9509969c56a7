"""What a node of a cluster does with a trial that it is given, perhaps twice."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ftui.errors import PARKED, PREEMPTED_SAVED, HardwareError, LostRunError
from ftui.runs.events import RunStopped
from ftui.runs.journal import encode
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, RunFacts
from ftui.runs.state import RunState
from ftui.runs.status import read_status
from ftui.sweep.executors import on_node
from ftui.sweep.executors.on_node import is_due, main, start_trial
from ftui.sweep.sweep_files import SweepEnded, SweepFiles, Trial, TrialAsked, TrialSent
from ftui.system.files import try_lock
from ftui.system.process_id import this_process

MakeSweep = Callable[..., SweepFiles]
ELSEWHERE = msgspec.structs.replace(this_process(), boot="another")


@pytest.mark.parametrize(
    ("state", "target", "due"),
    [
        (RunState(), 0, True),
        (RunState(attempt=1, phase="parked", exit_code=PARKED), 0, False),  # it is at its rung: a job came twice
        (RunState(attempt=1, phase="parked", exit_code=PARKED), None, False),
        (RunState(attempt=1, phase="parked", exit_code=PREEMPTED_SAVED), 0, True),  # and requeued
        (RunState(attempt=1, phase="lost"), 0, True),  # its node was lost
        (RunState(attempt=1, phase="failed", exit_code=41), 0, False),
        (RunState(attempt=1, phase="starting", exit_code=41, restarting=True), 0, True),  # with its supervisor
    ],
)
def test_what_is_due(state: RunState, target: int | None, due: bool) -> None:
    assert is_due(Trial(0, {}, {}, 0, target), state) == due


@pytest.fixture
def sent(make_sweep: MakeSweep, make_run: Callable[..., Run]) -> tuple[SweepFiles, Run]:
    """A sweep with one trial that was sent."""
    files = make_sweep()
    with files.changing() as pen:
        pen.write(TrialAsked(trial=0, point={"train.learning_rate": 1e-4, "adapter.r": 8}))
        pen.write(TrialSent(trial=0, job="100"))
    run = make_run(files.run_of(0).name, root=files.root)
    run.facts.write_bytes(msgspec.json.encode(RunFacts("id", run.name, 0.0, "x", queued=True)))
    run.profile.write_text(files.profile.read_text())
    return files, run


@pytest.mark.parametrize("happening", ["nothing", "locked", "stopped", "at its rung"])
def test_a_run_is_started_by_one_of_those_who_are_given_it(
    sent: tuple[SweepFiles, Run], happening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, run = sent
    begun: list[str] = []
    monkeypatch.setattr(on_node, "launch", lambda run, lock, cards: begun.append(run.name))
    lock = try_lock(run.supervisor_lock) if happening == "locked" else None
    if happening == "stopped":
        with files.changing() as pen:
            pen.write(SweepEnded(reason="stopped by hand"))
    if happening == "at its rung":
        run.journal.write_bytes(encode(RunStopped(step=10, reason="rung", exit_code=PARKED, attempt=1)))
    start_trial(files, 0)
    assert begun == ([run.name] if happening == "nothing" else [])
    assert try_lock(run.supervisor_lock) is not None or lock is not None, "the lock is free again"


def beat_at(run: Run, moment: float, step: int = 1) -> None:
    beat = Beat(phase="training", step=step, micro_step=0, progress=step, time=moment, attempt=1)
    run.beat.write_bytes(msgspec.json.encode(beat))


def test_a_run_that_gives_signs_of_life_elsewhere_is_not_started(
    sent: tuple[SweepFiles, Run], append: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node was given up by the scheduler, and trains on."""
    files, run = sent
    append(run.supervisor_log, EngineStarted(identity=ELSEWHERE), attempt=1)
    beat_at(run, time.time())
    assert read_status(run).elsewhere, "that is how it is shown, too"
    monkeypatch.setattr("ftui.runs.status.time.sleep", lambda _: beat_at(run, time.time(), step=2))
    with pytest.raises(LostRunError, match="another machine"):
        start_trial(files, 0)
    beat_at(run, 1.0)
    assert not read_status(run).elsewhere and read_status(run).state.phase == "lost"


def test_a_trial_that_is_to_have_a_gpu_is_not_trained_on_a_cpu(
    sent: tuple[SweepFiles, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, run = sent
    run.profile.write_text(run.profile.read_text().replace('device = "cpu"', 'device = "auto"'))
    monkeypatch.setattr(on_node, "device_kind", lambda *_: "cpu")
    with pytest.raises(HardwareError, match="shows no GPU, and a trial is to have 1"):
        start_trial(files, 0)


def test_a_trial_that_nobody_has_asked(make_sweep: MakeSweep, capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody has submitted the printed script by hand."""
    files = make_sweep()
    assert main([str(files.folder), "5"]) == 2 and "has not asked trial 5 yet" in capfd.readouterr().err
    assert main(["x"]) == 2
