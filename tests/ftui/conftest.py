"""What the tests of the ground floor share: private places, runs made by hand, records with their stamps."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ftui.launch import open_run
from ftui.runs.journal import encode
from ftui.runs.records.record import Record
from ftui.runs.run_folder import Run, RunFacts, runs_root
from ftui.supervisor import spawn
from ftui.system.process_id import Identity, this_process

MakeRun = Callable[..., Run]
Append = Callable[..., None]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the runs or roots of the person who runs it, nor leaves a umask behind."""
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def nobody_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No supervisor for the engines these tests make up: it would take the test's own process for one."""
    for room in (open_run, spawn):
        monkeypatch.setattr(room, "launch", lambda run, lock=None, cards=(): None)


@pytest.fixture
def make_run() -> MakeRun:
    """Makes an opened run's folder: `make_run("name", created=...)`."""

    def make(name: str = "mine", *, created: float | None = None, root: Path | None = None) -> Run:
        run = Run((root or runs_root()) / name)
        run.folder.mkdir(parents=True)
        facts = RunFacts(
            run_id="0011223344556677",
            name=name,
            created=time.time() if created is None else created,
            profile_name=name,
        )
        run.facts.write_bytes(msgspec.json.encode(facts))
        return run

    return make


@pytest.fixture
def append() -> Append:
    """Adds records to a file as its writer would: `append(path, record, ..., attempt=1)`."""

    def add(path: Path, *records: Record, attempt: int | None = None) -> None:
        with path.open("ab") as file:
            for record in records:
                stamped = record if attempt is None else msgspec.structs.replace(record, attempt=attempt)
                file.write(encode(stamped))

    return add


@pytest.fixture
def living() -> Identity:
    """The identity of a process that lives: this one."""
    return this_process()


@pytest.fixture
def dead() -> Identity:
    """The identity of a process that is gone: this one's pid, but started at another moment."""
    return msgspec.structs.replace(this_process(), started="1")
