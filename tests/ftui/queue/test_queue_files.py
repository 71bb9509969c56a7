"""A queue's journal: what its records come to, and what a crash or a later version may leave in it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.queue import change
from ftui.queue.queue_files import QueueFiles, all_queues, find_entry_run
from ftui.queue.queue_view import view_queues
from ftui.queue.waiting_runs import (
    Added,
    AnyLine,
    Continued,
    Ended,
    Moved,
    Paused,
    Queue,
    Removed,
    Started,
    fold,
)
from ftui.runs.run_folder import Run, RunFacts
from ftui.system.files import LONGEST_FILE, UnsafePathError
from ftui.system.process_id import this_process


def added(run_id: str) -> Added:
    return Added(run_id=run_id, name=run_id, device="cpu")


def started(run_id: str, step: int = 0) -> Started:
    return Started(run_id=run_id, by=this_process(), cards=["cpu"], step=step)


ABC: list[AnyLine] = [added("a"), added("b"), added("c")]


@pytest.mark.parametrize(
    ("lines", "running", "waiting", "paused"),
    [
        ([], "", "", False),
        (ABC, "", "abc", False),
        ([*ABC, added("a")], "", "abc", False),  # it waits already
        ([*ABC, Moved(run_id="c", place=0)], "", "cab", False),
        ([*ABC, Moved(run_id="a", place=1)], "", "bac", False),
        ([*ABC, Moved(run_id="a", place=99)], "", "bca", False),
        ([*ABC, Removed(run_id="b"), Moved(run_id="b", place=0)], "", "ac", False),
        ([*ABC, started("a"), started("b")], "ab", "c", False),
        ([*ABC, started("a"), Moved(run_id="a", place=1)], "a", "bc", False),
        ([*ABC, started("a"), Ended(run_id="a", how="failed"), added("a")], "", "bca", False),
        ([*ABC, Ended(run_id="z", how="failed")], "", "abc", False),  # of a run that is gone
        ([*ABC, Paused()], "", "abc", True),
        ([Paused(), *ABC, Continued()], "", "abc", False),
    ],
)
def test_what_the_records_come_to(lines: list[AnyLine], running: str, waiting: str, paused: bool) -> None:
    queue = Queue()
    for line in lines:
        queue = fold(queue, line)
    assert "".join(entry.run_id for entry in queue.running) == running
    assert ("".join(entry.run_id for entry in queue.waiting), queue.is_paused) == (waiting, paused)
    assert queue.is_at_work == bool(running or (waiting and not paused))


@pytest.mark.parametrize(("steps", "num_starts"), [([0], 1), ([0, 0, 0], 3), ([0, 0, 5], 1), ([0, 5, 5], 2)])
def test_starts_that_come_no_further_are_counted(steps: list[int], num_starts: int) -> None:
    queue = fold(Queue(), added("a"))
    for step in steps:
        queue = fold(queue, started("a", step))
    assert queue.running[0].num_starts == num_starts


@pytest.mark.parametrize(
    "rest", [b'{"kind":"added","run_id":"b"', b"\0\0\0", b'{"kind":"added"}\n', b'{"kind":"woven","v":1}\n',
             b'{"kind":"paused","v":99}\n', b"[[\n", b"\xff\n"]
)  # fmt: skip
def test_what_is_no_record_is_left_out_and_the_next_is_whole(tmp_path: Path, rest: bytes) -> None:
    files = QueueFiles(tmp_path)
    with files.changing() as pen:
        pen.write(added("a"))
    with files.journal.open("ab") as file:
        file.write(rest)
    assert [entry.run_id for entry in files.read().waiting] == ["a"]
    with files.changing() as pen:
        pen.write(added("b"))
        assert pen.queue == files.read()
    assert [entry.run_id for entry in files.read().waiting] == ["a", "b"]
    assert files.journal.read_bytes().endswith(b"\n")


def waiting_run(make_run: Any, name: str, files: QueueFiles) -> Run:
    run: Run = make_run(name, root=files.root)
    run.facts.write_bytes(msgspec.json.encode(RunFacts(f"id-{name}", name, 0.0, name, queued=True)))
    with files.changing() as pen:
        pen.write(Added(run_id=f"id-{name}", name=name, device="cpu"))
    return run


def test_a_run_is_found_under_another_name_by_now(make_run: Any, tmp_path: Path) -> None:
    files = QueueFiles(tmp_path / "runs")
    files.root.mkdir()
    run = waiting_run(make_run, "mine", files)
    assert find_entry_run(files.root, "mine", "id-mine") == run
    run.folder.rename(files.root / "yours")
    assert find_entry_run(files.root, "mine", "id-mine") == Run(files.root / "yours")
    assert change.find_waiting("yours")[1].run_id == "id-mine"
    assert find_entry_run(files.root, "mine", "id-other") is None


def test_removal_takes_what_was_made_for_the_queue_along(make_run: Any, tmp_path: Path) -> None:
    files = QueueFiles(tmp_path / "runs")
    files.root.mkdir()
    new, old = (waiting_run(make_run, name, files) for name in ("new", "old"))
    old.facts.write_bytes(msgspec.json.encode(RunFacts("id-old", "old", 0.0, "old")))  # it was parked, say
    assert change.remove(*change.find_waiting("new")) and not change.remove(*change.find_waiting("old"))
    assert not new.folder.exists() and old.folder.exists()
    assert files.read() == Queue() and all_queues() == [files]


def test_a_journal_that_is_no_journal_is_not_read_whole(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path)
    with open(files.journal, "wb") as file:
        file.truncate(LONGEST_FILE + 1)
    with pytest.raises(UnsafePathError, match="too long"):
        files.read()


def test_a_waiting_run_whose_folder_is_gone_is_listed_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTUI_RUNS", str(tmp_path))
    with QueueFiles(tmp_path).changing() as pen:
        pen.write(added("a"))
    ((row,),) = [view.rows for view in view_queues()]
    assert (row.run, row.phase, row.reason) == (None, "gone", "its folder is gone")


def test_a_name_in_the_journal_leads_nowhere_else(make_run: Any, tmp_path: Path) -> None:
    """Whoever may write there cannot have a run in another folder started."""
    run: Run = make_run("mine", root=tmp_path / "theirs")
    run_id = run.read_facts().run_id
    assert find_entry_run(tmp_path / "theirs", "mine", run_id) == run
    for name in ("../theirs/mine", str(run.folder)):
        assert find_entry_run(tmp_path / "runs", name, run_id) is None
