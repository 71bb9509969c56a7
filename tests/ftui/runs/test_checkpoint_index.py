"""What checkpoints a run has and how they stand, and the command that tells it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.errors import DiskError, LostRunError, UsageError
from ftui.runs import checkpoint_folders, send_request
from ftui.runs.checkpoint_folders import NOT_FINITE
from ftui.runs.checkpoint_index import CheckpointEntry, CheckpointIndex, best_step, describe_entry, read_checkpoints
from ftui.runs.events import CheckpointRejected, CheckpointSaved, CheckpointTagged
from ftui.runs.pins import read_pins, write_pins
from ftui.runs.run_folder import Run, runs_root
from ftui.runs.status import read_status
from ftui.system.files import try_lock
from tests.support.events import make_evaluation, make_run_started
from tests.support.shelf import (
    CONTENT,
    TOKENS,
    finished,
    folder_of,
    living,
    opened,
    saved,
    tell,
    trained,
)

Edit = Callable[[Path], object]


def looked(run: Run) -> dict[str, CheckpointEntry]:
    return {entry.name: entry for entry in read_checkpoints(run, read_status(run).state)}


@pytest.fixture
def run() -> Run:
    return finished(runs_root() / "mine")


def test_final_comes_first_then_the_newest(run: Run) -> None:
    entries = list(looked(run).values())
    assert [entry.name for entry in entries] == ["final", "checkpoint-12", "checkpoint-8", "checkpoint-4"]
    assert [entry.step for entry in entries] == [8, 12, 8, 4]
    assert [entry.kinds for entry in entries] == [["final"], ["periodic"], ["best", "periodic"], ["periodic"]]
    assert [entry.eval_loss for entry in entries] == [2.25, 2.5, 2.25, None]
    assert [describe_entry(entry) for entry in entries] == ["valid", "valid", "verified", "verified"]
    assert [entry.newest for entry in entries] == [False, True, False, False]
    assert all(entry.size and entry.size > len(CONTENT) and entry.attempt == 1 for entry in entries)
    assert all((run.folder / entry.path).is_dir() for entry in entries)


def test_pins_and_tags_that_came_later(run: Run) -> None:
    write_pins(run, [4, 99])
    tell(run.journal, CheckpointTagged(step=4, tag="manual"), CheckpointTagged(step=4, tag="manual"), attempt=2)
    entry = looked(run)["checkpoint-4"]
    assert (entry.pinned, entry.kinds, entry.tags) == (True, ["manual", "periodic"], ["periodic", "manual"])
    assert not looked(run)["final"].pinned


def test_best_is_what_is_the_best_now() -> None:
    run = trained(runs_root() / "mine")
    extras = make_evaluation(12, 1.0, requested=True), make_evaluation(4, 1.5, requested=True)
    tell(run.journal, make_evaluation(16, 2.0, best=True), *extras)
    saved(run, 16, "best")
    found = looked(run)
    assert found["checkpoint-16"].kinds == ["best"]
    assert found["checkpoint-8"].kinds == ["periodic", "was best"]
    assert found["checkpoint-12"].eval_loss == 2.5, "an extra evaluation does not replace one of the plan"
    assert (found["checkpoint-4"].eval_loss, found["checkpoint-4"].kinds) == (1.5, ["periodic"])


def test_last_is_what_is_the_last_now() -> None:
    run = trained(runs_root() / "mine")
    saved(run, 16, "last")
    assert looked(run)["checkpoint-16"].kinds == ["last"]
    saved(run, 20, "last", "periodic", attempt=2)
    found = looked(run)
    assert (found["checkpoint-16"].kinds, found["checkpoint-20"].kinds) == (["was last"], ["last", "periodic"])


def test_a_loss_that_was_not_finite_is_no_missing_one() -> None:
    run = trained(runs_root() / "mine")
    tell(run.journal, make_evaluation(16, float("nan")))
    saved(run, 16, "periodic")
    assert (looked(run)["checkpoint-16"].eval_loss, looked(run)["checkpoint-16"].eval_finite) == (None, False)
    assert (looked(run)["checkpoint-4"].eval_loss, looked(run)["checkpoint-4"].eval_finite) == (None, True)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "weights.bin").write_bytes(b"x"), "damaged: weights.bin: 1 bytes, should be 1025"),
        (lambda folder: (folder / "weights.bin").unlink(), "damaged: weights.bin: missing"),
        (lambda folder: (folder / "MANIFEST.json").unlink(), "damaged: MANIFEST.json: missing"),
        (lambda folder: (folder / "MANIFEST.json").write_bytes(b"\xff{"), "damaged: MANIFEST.json: unreadable"),
    ],
)
def test_quick_faults_are_told(run: Run, harm: Edit, words: str) -> None:
    harm(run.checkpoints / "checkpoint-12")
    found = looked(run)
    assert describe_entry(found["checkpoint-12"]).startswith(words)
    assert not found["checkpoint-12"].newest and found["checkpoint-8"].newest


def test_whole_but_nobody_goes_on_from_it(run: Run) -> None:
    folder_of(run, 16, finite=False)
    folder_of(run, 20, run_id="another")
    found = looked(run)
    assert describe_entry(found["checkpoint-16"]) == f"unusable: {NOT_FINITE}"
    assert describe_entry(found["checkpoint-20"]) == "unusable: belongs to another run (another)"
    assert found["checkpoint-12"].newest


def test_what_lies_aside_keeps_its_own_story() -> None:
    """Step 8 is saved by two attempts: each folder has the loss and the tags of the one that wrote it."""
    run = trained(runs_root() / "mine")
    damaged = checkpoint_folders.quarantine(checkpoint_folders.Checkpoint(run.checkpoints / "checkpoint-12", 12))
    moved = str(damaged.relative_to(run.folder))
    tell(run.journal, CheckpointRejected(path="checkpoints/checkpoint-12", moved_to=moved, reason="bits fell over"))
    (old,) = checkpoint_folders.supersede(run.checkpoints, 4)
    tell(run.journal, make_run_started(4), make_evaluation(8, 2.125), attempt=2)
    saved(run, 8, "manual", attempt=2, verified=False)
    found = looked(run)
    aside = found[f"superseded/{old.path.name}"]
    assert (aside.step, aside.eval_loss, aside.tags, aside.attempt) == (8, 2.25, ["best", "periodic"], 1)
    assert (describe_entry(aside), aside.kinds) == ("superseded, verified", ["periodic", "was best"])
    anew = found["checkpoint-8"]
    assert (anew.eval_loss, anew.kinds, describe_entry(anew), anew.attempt) == (2.125, ["manual"], "valid", 2)
    assert describe_entry(found[f"quarantine/{damaged.name}"]) == "quarantined: bits fell over"
    assert [entry.place for entry in found.values()] == ["checkpoints", "checkpoints", "superseded", "quarantine"]


def test_a_child_knows_what_its_parent_gave_it() -> None:
    run = opened(runs_root() / "child", parent="parent", run_id="child")
    folder_of(run, 8, run_id="parent", evaluated_step=8, last_loss=2.25, best_step=8)
    folder_of(run, 12, run_id="parent", evaluated_step=8, last_loss=2.25, best_step=8)
    found = looked(run)
    assert (found["checkpoint-8"].kinds, found["checkpoint-8"].eval_loss) == (["best", "inherited"], 2.25)
    assert (found["checkpoint-12"].kinds, found["checkpoint-12"].eval_loss) == (["inherited"], None)
    assert found["checkpoint-12"].newest and found["checkpoint-12"].problem is None
    assert best_step(run, read_status(run).state) == 8
    with pytest.raises(UsageError, match="best evaluation"):
        send_request.apply_directly(run, "delete", 8)


def test_nothing_saved_and_nothing_readable() -> None:
    run = opened(runs_root() / "mine")
    assert read_checkpoints(run, read_status(run).state) == []
    folder_of(run, 4)
    run.facts.write_bytes(b"{")
    run.journal.write_bytes(b"\xff\n")
    (run.checkpoints / "superseded").write_text("not a folder")
    (run.checkpoints / "quarantine").mkdir()
    (run.checkpoints / "quarantine" / "notes").mkdir()
    assert list(looked(run)) == ["checkpoint-4"]


def test_only_what_is_new_in_the_journal_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = CheckpointIndex(run)
    state = read_status(run).state
    assert len(browser.look(state)) == 4
    run.journal.write_bytes(b" " * run.journal.stat().st_size)
    tell(run.journal, CheckpointSaved(step=16, path="", tags=["last"], num_bytes=1, seconds=0.1))
    folder_of(run, 16)
    assert [entry.kinds for entry in browser.look(state)][1:3] == [["last"], ["periodic"]]


# -- the command


def test_the_table(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    write_pins(run, [4])
    (run.checkpoints / "checkpoint-12" / "weights.bin").write_bytes(b"\x1b")
    assert main(["checkpoints", "mine"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["checkpoint", "kind", "eval", "loss", "size", "state"]
    assert [line.split()[0] for line in lines] == ["final", "checkpoint-12", "checkpoint-8", "checkpoint-4"]
    assert "final (step 8)" in lines[0] and "2.2500" in lines[0]
    assert lines[1].endswith("damaged: weights.bin: 1 bytes, should be 1025")
    assert lines[3].endswith("verified, pinned") and "n/a" in lines[3]


def test_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "mine", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["hashed"]) == ("mine", False)
    assert [entry["path"] for entry in document["checkpoints"]][:2] == ["final", "checkpoints/checkpoint-12"]


def test_verifying_finds_what_a_look_does_not(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "mine", "--verify"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Every byte of all 4 is right."
    (run.checkpoints / "checkpoint-8" / "weights.bin").write_bytes(CONTENT + b"\xff")
    assert main(["checkpoints", "mine"]) == 0
    capsys.readouterr()
    assert main(["checkpoints", "mine", "--verify"]) == 40
    output = capsys.readouterr().out.splitlines()
    assert "checkpoint-8: damaged: weights.bin: the content does not match its SHA-256" in output
    assert output[-1] == "1 of 4 is not usable."


@pytest.mark.parametrize("name", ["8", "checkpoint-8", "checkpoints/checkpoint-8"])
def test_verifying_one(run: Run, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run.checkpoints / "checkpoint-12" / "weights.bin").unlink()
    assert main(["checkpoints", "mine", "--verify", name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (entry,) = document["checkpoints"]
    assert document["hashed"] and entry["step"] == 8 and entry["verified"]
    assert main(["checkpoints", str(run.folder), "--verify", "final"]) == 0
    assert capsys.readouterr().out == "final: verified\nEvery byte of it is right.\n"


@pytest.mark.parametrize("name", ["9", "../mine", "checkpoints", "superseded/checkpoint-8"])
def test_what_is_not_there_cannot_be_verified(run: Run, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "mine", "--verify", name]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_no_checkpoints_yet(capsys: pytest.CaptureFixture[str]) -> None:
    opened(runs_root() / "mine")
    assert main(["checkpoints", "mine"]) == 0
    assert capsys.readouterr().out == "mine has saved no checkpoint yet.\n"
    assert main(["checkpoints", "mine", "--verify"]) == 0
    assert capsys.readouterr().out == "Nothing to verify.\n"


def test_it_loads_neither_screens_nor_profiles(run: Run) -> None:
    code = (
        "import sys; from ftui.cli.main import main; main(['checkpoints', 'mine', '--verify']); "
        "print([m for m in ('textual', 'rich', 'pydantic', 'torch') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.endswith("right.\n[]\n")


# -- what is done to a run that is not running


def test_apply_here_takes_the_lock(run: Run) -> None:
    assert send_request.apply_directly(run, "pin", 4) == "checkpoint-4 is pinned"
    assert read_pins(run) == {4}
    with pytest.raises(UsageError, match="it is pinned"):
        send_request.apply_directly(run, "delete", 4)
    send_request.apply_directly(run, "unpin", 4)
    lock = try_lock(run.engine_lock)
    assert lock is not None
    with pytest.raises(LostRunError):
        send_request.apply_directly(run, "delete", 4)
    lock.close()
    assert send_request.apply_directly(run, "delete", 4) == "checkpoint-4 is deleted"
    assert "checkpoint-4" not in looked(run)
    with pytest.raises(UsageError, match="no checkpoint-4"):
        send_request.apply_directly(run, "pin", 4)


def test_a_volume_that_refuses_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint_folders, "discard", refuse)
    with pytest.raises(DiskError, match="`delete` of checkpoint-4 failed: Input/output error"):
        send_request.apply_directly(run, "delete", 4)


def test_the_command_line_does_it_by_the_same_way(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pin", "mine", "checkpoint-12"]) == 0
    assert capsys.readouterr().out == "checkpoint-12 is pinned\n"
    assert looked(run)["checkpoint-12"].pinned


def test_a_living_run_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    run = living(runs_root() / "mine")
    assert main(["checkpoints", "mine"]) == 0
    assert "checkpoint-12" in capsys.readouterr().out
    assert TOKENS[1] in run.journal.read_text()
