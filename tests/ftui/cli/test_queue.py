"""`ftui queue ...` as it is typed, without a run that trains: what is refused, what is said, what the list shows."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.cli.main import main
from ftui.queue import wake as waking
from ftui.queue.queue_files import QueueFiles
from ftui.queue.waiting_runs import Added
from ftui.runs.run_folder import Run, RunFacts, runs_root
from ftui.system.user_folders import note_root


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The queues whose dispatcher was to be started."""
    roots: list[Path] = []

    def popen(command: list[str], **_: Any) -> None:
        roots.append(Path(command[-2]))

    monkeypatch.setattr("ftui.queue.wake.subprocess.Popen", popen)
    return roots


@pytest.fixture
def waiting(make_run: Any) -> QueueFiles:
    """A queue of three runs."""
    files = QueueFiles(runs_root())
    for name in ("one", "two", "three"):
        run: Run = make_run(name)
        run.facts.write_bytes(msgspec.json.encode(RunFacts(f"id-{name}", name, 0.0, name, queued=True)))
        with files.changing() as pen:
            pen.write(Added(run_id=f"id-{name}", name=name, device="cpu", memory=1 << 30))
    return files


def order(files: QueueFiles) -> list[str]:
    return [entry.added.name for entry in files.read().waiting]


@pytest.mark.parametrize(
    ("words", "after"),
    [
        ("move three first", "three one two"),
        ("move one last", "two three one"),
        ("move one 2", "two one three"),
        ("remove two", "one three"),
        ("remove two one", "three"),
        ("pause", "one two three"),
        ("continue", "one two three"),
    ],
)
def test_the_order_is_changed(
    waiting: QueueFiles, woken: list[Path], words: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queue", *words.split()]) == 0
    assert order(waiting) == after.split()
    assert waiting.read().is_paused == (words == "pause")
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("move tow 1", "Did you mean two?"),
        ("move two 0", "1 is started next; or first, last."),
        ("move two soon", "1 is started next; or first, last."),
        ("remove two four", "No run named 'four' waits"),
        ("mov two 1", "Did you mean move"),
        ("mine.toml", "`ftui queue add mine.toml` adds it."),
        ("add one", "starts it next; --name adds another."),
        ("add nothing.toml", "nothing.toml"),
        ("add", "ftui queue add --help"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    waiting: QueueFiles, woken: list[Path], words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(runs_root() / "one").profile.write_text(
        '[run]\nstage = "sft"\n[model]\nname_or_path = "hub/model"\n[data]\ntrain = "rows.jsonl"\n'
    )
    assert main(["queue", *words.split()]) in (2, 30)
    assert message in capsys.readouterr().err and order(waiting) == ["one", "two", "three"]


def test_the_list_says_what_waits_and_why(waiting: QueueFiles, woken: list[Path], capsys: Any) -> None:
    main(["queue", "pause"])
    capsys.readouterr()
    assert main(["queue"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["1", "one", "queued", "CPU", "1.0", "GiB", "the", "queue", "is", "paused"]
    assert "ftui queue continue" in lines[-1]
    assert main(["queue", "list", "--json"]) == 0
    (queue,) = json.loads(capsys.readouterr().out)
    assert queue["paused"] and [run["place"] for run in queue["runs"]] == [1, 2, 3]
    main(["runs"])
    assert capsys.readouterr().out.count("queued") == 3


def test_a_queue_that_cannot_be_read_hides_no_other(waiting: QueueFiles, woken: list[Path], capsys: Any) -> None:
    other = waiting.root.parent / "other"
    other.mkdir()
    (other / "queue.jsonl").symlink_to("/dev/null")
    note_root(other)
    assert main(["queue"]) == 0
    told = capsys.readouterr()
    assert told.out.count("queued") == 3 and f"The queue of {other} cannot be read" in told.err
    assert main(["queue", "move", "three", "first"]) == 0 and order(waiting)[0] == "three"
    assert main(["queue", "list", "--json"]) == 0
    assert [bool(queue.get("problem")) for queue in json.loads(capsys.readouterr().out.partition("\n")[2])] == [
        False,
        True,
    ]


def test_any_command_starts_the_dispatcher_where_there_is_something_to_do(
    waiting: QueueFiles, woken: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    main(["runs"])
    assert woken == [waiting.root]
    main(["queue", "pause"])
    woken.clear()
    main(["runs"])
    assert woken == []
    main(["queue", "continue"])
    assert woken == [waiting.root]

    def fail() -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(waking, "wake_dispatchers", fail)
    assert main(["runs"]) == 0, "that is no reason to fail"
    assert "read-only" in capsys.readouterr().err
