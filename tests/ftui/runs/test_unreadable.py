"""One folder with files that nobody can read: that run is shown as unreadable, all others as ever, and soon."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from ftui.cli.main import main
from ftui.errors import DiskError
from ftui.runs import journal
from ftui.runs.checkpoint_folders import discard, publish
from ftui.runs.checkpoint_index import CheckpointEntry, read_checkpoints, verify_entry
from ftui.runs.curves import CurveReader
from ftui.runs.manifest import MANIFEST, Manifest
from ftui.runs.run_folder import Run
from ftui.runs.status import Status, Watch, read_status
from ftui.supervisor.attempt import Mark, mark
from ftui.system.files import open_plain
from ftui.tui.state.run_list import RunList
from ftui.tui.state.run_view import RunView
from tests.support.replayed import read_curves, replay

SECONDS = 3.0  # of the processor; a reader that reads it all takes far longer
HUGE = 3 << 30


def nested(path: Path) -> None:
    path.write_text('{"state":' * 2000 + "1" + "}" * 2000)


def nested_lists(path: Path) -> None:
    path.write_text('{"time": 1.0, "state": {"samples": ' + "[" * 100_000 + "]" * 100_000 + "}}")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


Spoil = Callable[[Path], None]
NOT_FILES: list[Spoil] = [fifo, endless, sparse, folder, loop]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    replay("wiki-style-finished", tmp_path / "runs")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        *(("status.json", spoil) for spoil in (nested, nested_lists, *NOT_FILES)),
        *((name, spoil) for name in ("journal.jsonl", "metrics.jsonl", "supervisor.jsonl") for spoil in NOT_FILES),
    ],
)
def test_one_bad_folder_blinds_nobody(name: str, spoil: Spoil, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = replay("full-parked", root)
    (bad.folder / name).unlink()
    spoil(bad.folder / name)
    begin = time.process_time()
    assert main(["runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "unreadable" in lines["full-parked"]
    assert "finished" in lines["wiki-style-finished"]
    assert main(["status", bad.name, "--json"]) == 0
    assert name in json.loads(capsys.readouterr().out)["unreadable"]
    assert main(["status", bad.name]) == 0
    assert name in capsys.readouterr().out
    screen = RunList()
    screen.look()
    screen.look()
    assert {row.run.name: bool(row.status.unreadable) for row in screen.rows} == {
        "full-parked": True, "wiki-style-finished": False,
    }  # fmt: skip
    view = RunView(bad)
    view.look()
    assert name in view.status.unreadable
    assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize("name", ["journal.jsonl", "metrics.jsonl", "supervisor.jsonl"])
def test_a_file_that_the_disk_does_not_give_back_is_named(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replay("full-parked", root)

    def failing(path: Path) -> int:
        if path == root / "full-parked" / name:
            raise OSError(errno.EIO, "Input/output error")
        return open_plain(path)

    monkeypatch.setattr(journal, "open_plain", failing)
    assert main(["runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "unreadable" in lines["full-parked"] and "finished" in lines["wiki-style-finished"]
    said = read_status(Run(root / "full-parked")).unreadable
    assert name in said and "Input/output error" in said


def test_a_disk_that_answers_again_has_cost_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor and a screen live on; what they could not read they read later."""
    run = replay("full-parked", root)
    expected = replay("full-parked", root / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(journal, "open_plain", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        watch, curves = Watch(run, Status()), CurveReader(run, afresh=True)
        assert watch.read() == [] and "Input/output error" in watch.problem
        assert not curves.advance()
    while curves.advance():
        continue
    watch.read()
    assert watch.problem == "" and watch.state == read_status(expected).state
    assert curves.curves == read_curves(expected)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        assert mark(run.engine_log) == Mark(0, 0)


@pytest.mark.parametrize("spoil", NOT_FILES)
@pytest.mark.parametrize("name", ["beat.json", "curves.json", "pins.json", "telemetry.jsonl", "engine.log", "run.json"])
def test_what_only_adds_to_the_picture_hides_nothing(
    name: str, spoil: Spoil, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = replay("full-parked", root)
    (bad.folder / name).unlink(missing_ok=True)
    spoil(bad.folder / name)
    begin = time.process_time()
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "finished" in listed
    RunView(bad).look()
    RunList().look()
    if bad.name in listed:  # then it is a run by that name
        assert main(["status", bad.name]) in (0, DiskError.exit_code)
    assert time.process_time() - begin < SECONDS


NAMES = ("adapter_model.safetensors", "resume/state.json")


@pytest.fixture
def saved(root: Path) -> Run:
    """A run with two whole checkpoints."""
    run = Run(root / "wiki-style-finished")
    shutil.rmtree(run.checkpoints)

    def fill(scratch: Path) -> None:
        (scratch / "resume").mkdir()
        (scratch / NAMES[0]).write_bytes((2).to_bytes(8, "little") + b"{}")
        (scratch / NAMES[1]).write_text("{}")

    for step in (1, 2):
        manifest = Manifest(
            run_id=run.read_facts().run_id, attempt=1, token="t", step=step, versions={}, fingerprints={}, dtypes={},
            finite=True, created=0.0,
        )  # fmt: skip
        publish(run.checkpoints / f"checkpoint-{step}", manifest, fill)
    return run


def entries_of(run: Run) -> list[CheckpointEntry]:
    return [entry for entry in read_checkpoints(run, read_status(run).state) if entry.place == "checkpoints"]


@pytest.mark.parametrize("spoil", [nested, *NOT_FILES])
@pytest.mark.parametrize("name", [MANIFEST, *NAMES])
def test_a_checkpoint_that_cannot_be_read_is_damaged(name: str, spoil: Spoil, saved: Run) -> None:
    path = saved.checkpoints / "checkpoint-2" / name
    path.unlink()
    spoil(path)
    begin = time.process_time()
    newest, older = (verify_entry(saved, entry) for entry in entries_of(saved))
    assert newest is not None and newest.problem is not None and name in newest.problem
    assert older is not None and older.problem is None
    assert time.process_time() - begin < SECONDS


def test_a_checkpoint_that_goes_while_it_is_verified_is_not_damaged(saved: Run) -> None:
    newest, older = entries_of(saved)
    discard(saved.folder / newest.path)
    assert verify_entry(saved, newest) is None
    (saved.folder / older.path / NAMES[0]).unlink()
    damaged = verify_entry(saved, older)
    assert damaged is not None and damaged.problem == f"{NAMES[0]}: missing"
