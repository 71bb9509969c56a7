"""The recorded runs are whole, stand as they were recorded, and tell nothing of the machine that made them."""

import json
import re
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ftui.errors import STOPPED, DataError, HostMemoryError, NonFiniteError
from ftui.profile.layers import resolve
from ftui.runs import checkpoint_folders
from ftui.runs.curves import CurveReader, read_stored_curves
from ftui.runs.events import ControlApplied, ControlRefused, RunStarted
from ftui.runs.journal import Tail
from ftui.runs.pins import read_pins
from ftui.runs.records.record import Phase
from ftui.runs.records.supervisor_records import Restarting
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.runs.status import Status, Watch, is_final, is_running, read_status
from ftui.system.process_id import this_process
from tests.support.recording import Scrubber
from tests.support.replayed import ROOT, RUNS, list_recordings, replay, time_of_last_record

MOST_BYTES = 3_500_000
# A path under somebody's temporary, work or home folders; a host name and a boot id that were not replaced.
OF_A_MACHINE = re.compile(
    rb"/(?:tmp|work|root|home|Users)(?![\w-])"
    rb'|"host":"(?!pod")'
    rb'|"boot":"(?!00000000-0000-0000-0000-000000000000")'
)


class Expected(NamedTuple):
    """How a run stands when its processes are gone, and how it stood while it was recorded."""

    phase: Phase
    exit_code: int | None
    attempt: int = 1
    then: Phase | None = None


EXPECTED = {
    "exploded": Expected("failed", NonFiniteError.exit_code),
    "full-parked": Expected("parked", 11),
    "killed-by-host": Expected("lost", None),
    "no-such-rows": Expected("failed", DataError.exit_code),
    "out-of-memory": Expected("failed", HostMemoryError.exit_code),
    "stopped-early": Expected("stopped", STOPPED),
    "wiki-style-finished": Expected("finished", 0, 3),
    "wiki-style-held": Expected("lost", None, 3, "held"),
    "wiki-style-lora": Expected("lost", None, 3, "training"),
}
LIVING = [name for name, expected in EXPECTED.items() if expected.then]


def test_these_are_all() -> None:
    assert list_recordings() == sorted(EXPECTED)
    assert sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("name", EXPECTED)
def test_every_line_is_read(name: str) -> None:
    run = Run(RUNS / name)
    for path in (run.journal, run.metrics, run.supervisor_log, run.telemetry):
        tail = Tail(path)
        assert len(tail.read()) == path.read_bytes().count(b"\n")
        assert (tail.num_unknown, tail.num_damaged, tail.offset) == (0, 0, path.stat().st_size)
    assert run.read_facts().name == name
    assert resolve(run.profile).profile.run.stage == "sft"


@pytest.mark.parametrize("name", EXPECTED)
def test_it_stands_as_it_did(name: str, tmp_path: Path) -> None:
    status = read_status(replay(name, tmp_path))
    state, expected = status.state, EXPECTED[name]
    assert (state.phase, state.exit_code, state.attempt) == expected[:3]
    assert not is_running(status)
    if state.phase == "failed":
        assert state.message and state.hint


@pytest.mark.parametrize("name", LIVING)
def test_it_lives_where_this_process_takes_its_place(name: str, tmp_path: Path) -> None:
    run = replay(name, tmp_path, living=True)
    status = read_status(run)
    assert (status.state.phase, status.state.attempt) == (EXPECTED[name].then, 3)
    assert is_running(status) and not is_final(status)
    assert not status.unwatched and not status.frozen


@pytest.mark.parametrize("living", [False, True])
@pytest.mark.parametrize("name", EXPECTED)
def test_status_and_curves_fit_the_records(name: str, living: bool, tmp_path: Path) -> None:
    run = replay(name, tmp_path, living=living)
    stored = msgspec.json.decode(run.status.read_bytes(), type=Status)
    watch = Watch(run)
    watch.catch_up()
    assert watch.offsets == stored.offsets, "nothing was left to read"
    run.status.unlink()
    afresh = Watch(run)
    afresh.catch_up()
    assert afresh.offsets == stored.offsets
    assert afresh.state == stored.state
    reader = CurveReader(run, afresh=True)
    while reader.advance():
        continue
    assert reader.curves == read_stored_curves(run)
    assert reader.curves.offset == run.metrics.stat().st_size


@pytest.mark.parametrize("name", EXPECTED)
def test_its_moment_is_after_everything(name: str) -> None:
    run = Run(RUNS / name)
    status = msgspec.json.decode(run.status.read_bytes(), type=Status)
    assert run.read_facts().created < time_of_last_record(run) < run.read_facts().created + 600
    assert abs(time_of_last_record(run) - status.time) < 2, "the supervisor looks once a second"


def state_of(name: str) -> RunState:
    return msgspec.json.decode((RUNS / name / "status.json").read_bytes(), type=Status).state


@pytest.mark.parametrize("name", ["wiki-style-lora", "wiki-style-held", "wiki-style-finished"])
def test_the_long_run_shows_all_that_can_happen(name: str) -> None:
    run = Run(RUNS / name)
    journal = Tail(run.journal).read()
    verbs = [record.verb for record in journal if isinstance(record, ControlApplied)]
    assert verbs[:6] == ["hold", "evaluate", "continue", "set", "checkpoint", "park"]
    assert [record.verb for record in journal if isinstance(record, ControlRefused)] == ["continue"]
    assert [record.reproducibility for record in journal if isinstance(record, RunStarted)] == [None, "EXACT", "EXACT"]
    assert [r.error for r in Tail(run.supervisor_log).read() if isinstance(r, Restarting)] == ["SIGKILL"]
    state = state_of(name)
    assert len(state.evaluations) > 10
    assert read_pins(run) <= {checkpoint.step for checkpoint in state.checkpoints}
    assert {c.step for c in checkpoint_folders.checkpoints_in(run.checkpoints)} == {c.step for c in state.checkpoints}


@pytest.mark.parametrize("name", EXPECTED)
def test_its_checkpoints_can_be_listed(name: str) -> None:
    run = Run(RUNS / name)
    for checkpoint in checkpoint_folders.checkpoints_in(run.checkpoints):
        manifest = checkpoint_folders.read_manifest(checkpoint.path)
        assert (manifest.step, manifest.run_id) == (checkpoint.step, run.read_facts().run_id)
        fault = checkpoint_folders.fault(checkpoint.path)
        assert fault is not None and fault.endswith(": missing"), "its seal holds, its weights are not here"


def test_nothing_tells_of_a_machine() -> None:
    for path in [path for path in RUNS.rglob("*") if path.is_file()]:
        found = OF_A_MACHINE.search(path.read_bytes())
        assert not found, f"{path.relative_to(RUNS)}: {found}"


def test_the_scrubber_knows_folders_host_and_boot() -> None:
    told = {
        "host": socket.gethostname(),
        "boot": this_process().boot,
        "lines": f"in:\n/srv/place/runs/mine and {ROOT}/engine/loop.py",
        "libraries": f"{sys.prefix}/lib",
        "longer": "/srv/place-2 and /mnt/srv/place",
    }
    assert json.loads(Scrubber(Path("/srv/place"))(json.dumps(told).encode())) == {
        "host": "pod",
        "boot": "00000000-0000-0000-0000-000000000000",
        "lines": "in:\n/workspace/runs/mine and /workspace/ftui/engine/loop.py",
        "libraries": "/workspace/venv/lib",
        "longer": "/srv/place-2 and /mnt/srv/place",
    }
