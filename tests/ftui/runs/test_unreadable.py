"""One folder with files that nobody can read: that run is shown as unreadable, all others as ever, and soon."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.runs.checkpoint_index import read_checkpoints, verify_entry
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.tui.state.run_list import RunList
from ftui.tui.state.run_view import RunView
from tests.support.replayed import replay

SECONDS = 3.0  # a reader that waits or reads it all takes far longer
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
    begin = time.monotonic()
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
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize("spoil", NOT_FILES)
@pytest.mark.parametrize("name", ["beat.json", "curves.json", "pins.json", "telemetry.jsonl", "engine.log", "run.json"])
def test_what_only_adds_to_the_picture_hides_nothing(
    name: str, spoil: Spoil, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = replay("full-parked", root)
    (bad.folder / name).unlink()
    spoil(bad.folder / name)
    begin = time.monotonic()
    assert main(["runs"]) == 0
    assert "finished" in capsys.readouterr().out
    RunView(bad).look()
    RunList().look()
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize("spoil", [nested, *NOT_FILES])
@pytest.mark.parametrize("name", ["MANIFEST.json", "resume/state.json", "adapter_model.safetensors"])
def test_a_checkpoint_that_cannot_be_read_is_damaged(name: str, spoil: Spoil, root: Path) -> None:
    run = Run(root / "wiki-style-finished")
    first = read_checkpoints(run, read_status(run).state)
    path = next(iter(run.checkpoints.glob(f"checkpoint-*/{name}")))
    path.unlink()
    spoil(path)
    begin = time.monotonic()
    after = read_checkpoints(run, read_status(run).state)
    assert len(after) == len(first)
    step = int(path.relative_to(run.checkpoints).parts[0].removeprefix("checkpoint-"))
    entry = next(entry for entry in after if entry.place == "checkpoints" and entry.step == step)
    verified = verify_entry(run, entry)
    assert verified is not None and verified.problem is not None and name in verified.problem
    assert time.monotonic() - begin < SECONDS


def test_a_checkpoint_that_goes_while_it_is_verified_is_not_damaged(root: Path) -> None:
    from ftui.runs.checkpoint_folders import discard

    run = Run(root / "wiki-style-finished")
    entries = [e for e in read_checkpoints(run, read_status(run).state) if e.place == "checkpoints"]
    discard(run.folder / entries[0].path)
    assert verify_entry(run, entries[0]) is None
    (run.folder / entries[1].path / "adapter_model.safetensors").unlink()
    damaged = verify_entry(run, entries[1])
    assert damaged is not None and damaged.problem == "adapter_model.safetensors: missing"
