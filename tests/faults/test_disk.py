"""The whole program on a disk that becomes full, or that can do less than a local one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ftui.runs import checkpoint_folders
from ftui.runs.events import PhaseChanged, RunStarted, RunStopped, Warned
from ftui.runs.journal import Tail
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.system.volume import release_reserve
from tests.support.bench import Workbench, bench_at, newest, opened, records
from tests.support.cuts import Gate
from tests.support.driving import is_running, last, status, steps, wait_for_end, wait_until
from tests.support.sameness import same_runs
from tests.support.shims import compiled
from tests.support.zygote import ROOT, Zygote, tail_of

EPOCHS = 12
TOTAL = 120  # steps


@dataclass(frozen=True)
class Disk:
    """A bench whose run `faulty` stands on a disk with faults, which are in `env`; full while `full` exists."""

    bench: Workbench
    run: Run
    profile: Path
    full: Path
    env: dict[str, str]

    def start(self, *options: str, **switches: str) -> None:
        env = self.env | {f"FAULTIO_{name}": value for name, value in switches.items()}
        result = self.bench.ftui("--run", str(self.profile), "--detach", *options, cwd=self.bench.folder, **env)
        assert result.returncode == 0, result.stdout + result.stderr

    def wait_until_held(self) -> dict[str, Any]:
        wait_until(lambda: read_status(self.run).state.phase in ("held", "finished", "parked", "failed"))
        answer = status(self.bench, "faulty")
        assert answer["state"]["phase"] == "held", (answer["state"], tail_of(self.run))
        return answer

    def is_parked(self, *words: str) -> dict[str, bytes]:
        """See that the attempt ends parked, in one of these words; returns the files of all its checkpoints."""
        ended = wait_for_end(self.bench, self.run)["state"]
        assert (ended["phase"], ended["exit_code"]) == ("parked", 40), (ended, tail_of(self.run))
        told = f"{ended.get('reason')} {ended.get('message')}"
        assert any(word in told for word in words), (told, tail_of(self.run))
        return contents(self.run)

    def finish(self) -> None:
        """Repaired: the run goes on to its end."""
        self.full.unlink(missing_ok=True)
        result = self.bench.ftui("--run", str(self.profile))
        assert result.returncode == 0, result.stdout + result.stderr + tail_of(self.run)


def long_profile(bench: Workbench, name: str) -> Path:
    path = bench.profile(name, method="full")  # whose checkpoints do not fit into the reserve
    path.write_text(path.read_text().replace("num_train_epochs = 3", f"num_train_epochs = {EPOCHS}"))
    return path


@pytest.fixture(scope="module")
def reference(bench_source: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Run:
    """The run on a disk without faults."""
    bench = bench_at(bench_source, tmp_path_factory.mktemp("disk") / "bench")
    run = opened(bench, long_profile(bench, "reference"))
    assert zygote.start(run, bench.env).wait(300) == 0, tail_of(run)
    return run


@pytest.fixture
def disk(workbench: Workbench, tmp_path: Path) -> Disk:
    run, full = workbench.run("faulty"), tmp_path / "full"
    env = {
        "LD_PRELOAD": str(compiled("faultio", tmp_path)),
        "FAULTIO_FOLDER": str(run.folder),
        "FAULTIO_FULL": str(full),
    }
    return Disk(workbench, run, long_profile(workbench, "faulty"), full, env)


def contents(run: Run) -> dict[str, bytes]:
    """Every file of every checkpoint."""
    found = [
        path for c in checkpoint_folders.checkpoints_in(run.checkpoints) for path in c.path.rglob("*") if path.is_file()
    ]
    return {str(path.relative_to(run.checkpoints)): path.read_bytes() for path in found}


def test_a_full_disk_is_waited_for(disk: Disk, reference: Run) -> None:
    """The run holds, says what could go, goes on by itself, and is the same run in the end."""
    disk.start(FILL_AT="19,79")
    held = disk.wait_until_held()
    before, reached = contents(disk.run), len(steps(disk.run))
    assert before
    record = last(disk.run, PhaseChanged)
    assert record.phase == "held"
    assert "could not" in record.detail or "cannot take" in record.detail
    oldest = checkpoint_folders.checkpoints_in(disk.run.checkpoints)[-1].path.name
    assert f"`ftui delete faulty {oldest}` frees" in record.detail
    assert f"delete faulty {oldest}" in held["state"]["detail"]
    shown = disk.bench.ftui("status", "faulty").stdout
    assert "paused" in shown and f"delete faulty {oldest}" in " ".join(shown.split()), shown
    time.sleep(6)  # one more try
    assert (contents(disk.run), len(steps(disk.run))) == (before, reached)
    assert is_running(status(disk.bench, "faulty"))
    disk.full.unlink()
    wait_until(disk.full.exists)  # a second time, in the same attempt
    disk.wait_until_held()
    disk.full.unlink()
    ended = wait_for_end(disk.bench, disk.run)
    assert (ended["state"]["phase"], ended["state"]["attempt"]) == ("finished", 1), tail_of(disk.run)
    assert [r.step for r in steps(disk.run)] == list(range(1, TOTAL + 1))
    same_runs(disk.run, reference)
    assert disk.run.reserve.exists()


SOON = """
import os, sys
if "ftui.supervisor" in sys.orig_argv:
    from ftui.runs.health import forecasts
    from ftui.supervisor import machine_health
    forecasts.FEWEST, machine_health.SAMPLE_SECONDS = 9, 0.0  # of a second each: ten minutes otherwise
if "ftui.engine" in sys.orig_argv:
    from tests.support.sabotage import arm
    arm("gate", ["updating", os.environ["GATE"], 1])
"""
SAMPLES, LESS = 120, 4 << 20  # others fill the disk in so many samples, with so many bytes between two


def test_a_disk_that_is_filling_is_told_while_there_is_room(disk: Disk, reference: Run, tmp_path: Path) -> None:
    """The alarm comes before the disk is full; then the run holds, its checkpoints stay, and with room it goes on."""
    left, gate, run = tmp_path / "left", Gate(tmp_path / "gate", 1), disk.run

    def say(samples: int) -> None:
        """How much is free; at once, or who looks in between sees the real disk."""
        (tmp_path / "next").write_text(str(samples * LESS))
        (tmp_path / "next").rename(left)

    (tmp_path / "sitecustomize.py").write_text(SOON)
    places = os.pathsep.join([str(tmp_path), str(ROOT), disk.bench.env.get("PYTHONPATH", "")])
    say(SAMPLES)
    disk.env.update(PYTHONPATH=places, GATE=str(tmp_path / "gate"))
    disk.start("--set", "checkpoint.save_total_limit=40", FREE=str(left))
    seen, alarms, telemetry = 0, list[HealthAlarm](), Tail(run.telemetry)
    while not alarms:
        new = len(telemetry.read())
        seen += new
        assert seen < SAMPLES, "it is full, and nobody was told"
        say(SAMPLES - seen)
        if read_status(run).state.phase == "training":
            gate.let_through(2 * new)  # a step for each sample: the run takes longer than the disk lasts
        alarms = [record for record in Tail(run.supervisor_log).read() if isinstance(record, HealthAlarm)]
        time.sleep(0.02)
    assert [(one.rule, one.level) for one in alarms] == [("disk", "amber")]
    assert "of the disk of the run are free, none in" in alarms[0].evidence
    shown = " ".join(disk.bench.ftui("status", "faulty").stdout.split())
    assert alarms[0].evidence in shown and "`ftui checkpoints faulty`" in shown, shown
    gate.let_through(12)  # to its first checkpoint at least
    wait_until(lambda: bool(contents(run)))
    say(0)
    disk.full.touch()
    gate.open()
    disk.wait_until_held()
    kept = contents(run)
    assert len(steps(run)) < TOTAL
    say(SAMPLES)
    disk.full.unlink()
    ended = wait_for_end(disk.bench, run)
    assert (ended["state"]["phase"], ended["state"]["attempt"]) == ("finished", 1), tail_of(run)
    same_runs(run, reference)
    assert kept.items() <= contents(run).items(), "what was saved before is as it was"


def test_a_disk_that_fills_again_and_again_parks_the_run_each_time(disk: Disk, reference: Run) -> None:
    """In training, at a resume, while it starts, and with no reserve left to write in how it ended: parked, never
    failed or lost, no checkpoint the worse, and with room again the same run."""
    impatient = ("--set", "checkpoint.max_hold_minutes=0.05")
    disk.start(*impatient, FILL_AT="20")
    kept = disk.is_parked("the disk stayed full for 0.05 min")

    refused = disk.bench.ftui("--run", str(disk.profile), *impatient, cwd=disk.bench.folder, **disk.env)
    assert refused.returncode == 40 and "the disk is full" in refused.stderr, refused.stdout + refused.stderr
    assert disk.is_parked("the disk stayed full for 0.05 min") == kept

    disk.full.unlink()
    disk.start(*impatient)
    disk.full.touch()
    assert disk.is_parked("the disk is full", "The disk is full") == kept

    disk.full.unlink()
    disk.start(*impatient, FILL_AT="6")
    wait_until(disk.full.exists)
    while release_reserve(disk.run.reserve):
        pass
    disk.is_parked("the disk stayed full for 0.05 min", "did not take the engine's last record")

    expected = newest(disk.run)
    disk.finish()
    began = [r for r in records(disk.run) if isinstance(r, RunStarted)]
    assert began[-1].resumed_from == expected is not None
    assert {r.reproducibility for r in began[1:]} == {"EXACT"}
    same_runs(disk.run, reference)


def test_a_disk_that_is_full_at_the_start_is_said_at_once(disk: Disk) -> None:
    """No room for the run's folder, for its journal, or for a checkpoint."""
    disk.full.touch()
    everything = {**disk.env, "FAULTIO_FOLDER": str(disk.run.folder.parent)}
    result = disk.bench.ftui("--run", str(disk.profile), cwd=disk.bench.folder, **everything)
    assert (result.returncode, disk.run.folder.exists()) == (40, False), result.stdout + result.stderr
    assert "No space left" in result.stderr
    run = opened(disk.bench, disk.profile)
    result = disk.bench.ftui("--run", str(disk.profile), cwd=disk.bench.folder, **disk.env)
    assert result.returncode == 40, (result.returncode, result.stdout, result.stderr, tail_of(run))
    assert "the disk is full" in result.stderr


def test_a_limit_on_files_is_said_before_training(workbench: Workbench) -> None:
    """The kernel itself refuses (RLIMIT_FSIZE): no shim."""
    profile = workbench.profile("limited")
    command = f"ulimit -f 100; exec {sys.executable} -m ftui --run {profile}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=workbench.folder, env=workbench.env, capture_output=True, text=True, timeout=200
    )
    run = workbench.run("limited")
    assert result.returncode == 40, result.stdout + result.stderr
    assert "a limit on the size of files is reached" in result.stderr
    assert not run.folder.exists(), "it is said before there is a run"


def test_sigterm_does_not_wait_for_room(disk: Disk, reference: Run) -> None:
    disk.start(FILL_AT="20")
    held = disk.wait_until_held()
    os.kill(held["engine"]["pid"], signal.SIGTERM)
    ended = wait_for_end(disk.bench, disk.run)  # while it is full
    assert ended["state"]["exit_code"] in (20, 21), tail_of(disk.run)
    assert "pre-empted" in last(disk.run, RunStopped).reason
    disk.finish()
    same_runs(disk.run, reference)


def test_without_flock_and_fsync_one_engine_trains_and_the_run_says_so(disk: Disk, reference: Run) -> None:
    command = [sys.executable, "-m", "ftui", "--run", str(disk.profile), "--detach"]
    env = disk.bench.env | disk.env | {"FAULTIO_FOLDER": str(disk.run.folder.parent)}
    env |= {"FAULTIO_NO_FLOCK": "1", "FAULTIO_NO_FSYNC": "1"}
    starts = [
        subprocess.Popen(
            command, cwd=disk.bench.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    outputs = [start.communicate(timeout=120)[0] for start in starts]
    assert [start.returncode for start in starts] == [0, 0], outputs
    ended = wait_for_end(disk.bench, disk.run)
    assert ended["state"]["phase"] == "finished", tail_of(disk.run)
    assert len([r for r in Tail(disk.run.supervisor_log).read() if isinstance(r, EngineStarted)]) == 1, outputs
    assert [r.step for r in steps(disk.run)] == list(range(1, TOTAL + 1))
    warned = [r.message for r in records(disk.run) if isinstance(r, Warned)]
    assert [word for word in ("no locks (flock)", "no fsync") if not any(word in message for message in warned)] == []
    same_runs(disk.run, reference)


def test_a_volume_without_renames_is_good_enough(disk: Disk, reference: Run) -> None:
    """Folders cannot be renamed: checkpoints are whole all the same, also after a SIGKILL."""
    disk.start(NO_RENAME="1", FOLDER=str(disk.run.folder.parent), FILL_AT="20")
    held = disk.wait_until_held()
    os.kill(held["engine"]["pid"], signal.SIGSTOP)  # or it goes on as soon as there is room
    expected = newest(disk.run)
    disk.full.unlink()
    os.kill(held["engine"]["pid"], signal.SIGKILL)
    ended = wait_for_end(disk.bench, disk.run)
    assert (ended["state"]["phase"], ended["state"]["attempt"]) == ("finished", 2), tail_of(disk.run)
    assert last(disk.run, RunStarted).resumed_from == expected is not None
    assert all(
        checkpoint_folders.fault(c.path) is None for c in checkpoint_folders.checkpoints_in(disk.run.checkpoints)
    )
    assert any("cannot rename folders" in r.message for r in records(disk.run) if isinstance(r, Warned))
    same_runs(disk.run, reference)
