"""Trials as jobs of SLURM: what is submitted, and that nothing that ends jobs loses or doubles one."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.profile.layers import resolve
from ftui.profile.presets import find_profile
from ftui.runs.status import read_status
from ftui.sweep import wake_sweeps
from ftui.sweep.controller import MOST_SENT, Controller, main
from ftui.sweep.executors import slurm_jobs
from ftui.sweep.executors.executor import ExecutorError
from ftui.sweep.executors.run_settings import RunSettings
from ftui.sweep.executors.slurm_jobs import SlurmJobs, job_script
from ftui.sweep.sweep_files import SWEEPS, SweepFiles
from ftui.sweep.wake_sweeps import wake
from tests.ftui.sweep.test_controller import told
from tests.support.driving import wait_until
from tests.support.played_sweep import PLAN, play
from tests.support.stand_in_sweep import COMMAND

MakeSweep = Callable[..., SweepFiles]
ONE_AT_A_TIME = PLAN.replace("eta = 2", "eta = 2\nparallel = 1").replace("trials = 8", "trials = 3")
ONE_AT_A_TIME = ONE_AT_A_TIME.replace(", 90]", "]")
ON_SLURM = '[run]\nexecutor = "slurm"\n'


def test_the_script_asks_for_what_the_sweep_says(make_sweep: MakeSweep) -> None:
    more = """[run]
executor = "slurm"
gpus = 2
cpus = 8
memory_gb = 60
time = "08:00:00"
partition = "gpu"
account = "me"
lines = ["module load cuda", "#SBATCH --constraint=nvlink"]
"""
    files = make_sweep(more=more)
    script = job_script(files, files.read_plan().run, Controller(files).profile).splitlines()
    head = [line for line in script if line.startswith("#SBATCH ")]
    asked = {line.partition(" --")[2].partition("=")[0]: line.partition("=")[2] for line in head}
    assert asked["gpus-per-node"] == "2" and asked["cpus-per-task"] == "8" and asked["mem"] == "61440M"
    assert asked["time"] == "08:00:00" and asked["partition"] == "gpu" and asked["account"] == "me"
    assert asked["signal"] == "B:TERM@120" and "requeue" in asked and asked["constraint"] == "nvlink"
    assert asked["job-name"].startswith("ftui-found-") and asked["output"].endswith("slurm-%A_%a.out")
    assert script[-2] == "module load cuda" and script[-1].endswith('"$SLURM_ARRAY_TASK_ID"')
    assert str(files.folder) in script[-1] and script.index(head[-1]) < script.index("module load cuda")


def test_what_slurm_refuses_is_said_in_its_words(tmp_path: Path, slurm: Path) -> None:
    files = SweepFiles(tmp_path / "runs" / SWEEPS / "not-yet")
    profile = resolve(find_profile("quickstart")).profile
    SlurmJobs(files, RunSettings("slurm")).check(profile)
    with pytest.raises(ExecutorError, match="invalid partition specified: nowhere"):
        SlurmJobs(files, RunSettings("slurm", partition="nowhere")).check(profile)


def test_without_its_programs_a_sweep_waits_for_a_command_on_another_machine(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = make_sweep(more=ON_SLURM)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([str(files.folder)]) == ExecutorError.exit_code
    assert "There is no sbatch on this machine" in capfd.readouterr().err
    assert files.read().is_at_work and not files.read().trials


def test_what_waits_is_cancelled_when_the_sweep_is_stopped(make_sweep: MakeSweep, slurm: Path) -> None:
    (slurm / "full").touch()
    jobs = SlurmJobs(make_sweep(more=ON_SLURM), RunSettings("slurm"))
    jobs.send([0, 3])
    assert {*jobs.find_sent()} == {0, 3}
    jobs.withdraw()
    wait_until(lambda: not list(slurm.glob("*.PENDING")))
    assert not SlurmJobs(make_sweep(name="other"), RunSettings("slurm")).find_sent()


@pytest.mark.slow
def test_a_trial_whose_jobs_never_begin_ends_and_says_why(
    make_sweep: MakeSweep, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "LOOK_SECONDS", 0.0)
    files = make_sweep(ONE_AT_A_TIME, more=ON_SLURM + 'lines = ["echo no such module >&2; exit 9"]\n')
    controller = Controller(files)
    for number in range(1, MOST_SENT + 1):
        controller.tick()
        wait_until(lambda number=number: len(list(slurm.glob("*_0.FAILED"))) == number)  # type: ignore[misc]
    controller.tick()
    (first, *_) = files.read().trials
    assert first.ended == "sent 5 times, and came no further: failed, exit code 9; no such module"


@pytest.mark.slow
def test_slurm_that_is_down_for_a_while_loses_no_trial(make_sweep: MakeSweep, slurm: Path) -> None:
    files = make_sweep(ONE_AT_A_TIME, more=ON_SLURM)
    (slurm / "full").touch()
    (slurm / "down").touch()
    controller = Controller(files)
    with pytest.raises(ExecutorError, match="Unable to contact slurm controller"):
        controller.tick()
    (slurm / "down").unlink()
    controller.tick()
    controller.tick()
    state = files.read()
    assert [trial.num_sent for trial in state.trials] == [1] and len(list(slurm.glob("*.PENDING"))) == 1
    SlurmJobs(files, RunSettings("slurm")).withdraw()


@pytest.mark.slow
def test_preempted_cut_off_and_without_its_process_a_sweep_comes_to_the_same(
    make_sweep: MakeSweep, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_sweeps, "COMMAND", [*COMMAND, "sweep"])
    files = make_sweep(ONE_AT_A_TIME, more=ON_SLURM)
    gate, run = files.root / "gate", files.run_of(0)
    gate.touch()
    process = wake(files)
    assert process is not None
    wait_until(lambda: read_status(run).state.attempt == 1)
    (slurm / "preempt").write_text("100_0")
    wait_until(lambda: read_status(run).state.attempt == 2)
    assert (slurm / "ended").read_text() == "100_0 PENDING 0\n", "it has saved and left, and SLURM has requeued it"
    process.kill()
    process.wait()
    process = wake(files)
    (slurm / "limit").write_text("0.1")
    wait_until(lambda: (slurm / "101.sh").exists())
    assert "100_0 COMPLETED 0" in (slurm / "ended").read_text(), "the sweep sends again what came to its limit of time"
    (slurm / "limit").unlink()
    gate.unlink()
    draw = random.Random(4)
    for _ in range(3):
        if process is not None:
            time.sleep(draw.uniform(0.2, 0.8))
            process.kill()
            process.wait()
        process = wake(files)
    assert process is None or process.wait(timeout=120) == 0
    state, expected = files.read(), play(make_sweep(ONE_AT_A_TIME, name="undisturbed"))
    assert state.ended == "all 3 trials are done" and told(state) == told(expected)
    engines = [tuple(json.loads(line)) for line in (files.root / "engines").read_text().splitlines()]
    sent = [(files.run_of(t.number).name, step) for t in state.trials for step in t.steps.values()]
    assert sorted(engines) == sorted(sent), "each to each of its rungs once"
