"""What the dispatcher does with a run, and that it may be killed whenever it likes."""

import errno
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.errors import PARKED, PREEMPTED_SAVED
from ftui.hardware.card_locks import take_cards
from ftui.queue import dispatcher as dispatching
from ftui.queue import wake as waking
from ftui.queue.dispatcher import MOST_STARTS, Dispatcher, how_it_ended
from ftui.queue.queue_files import QueueFiles
from ftui.queue.slots import choose_starts
from ftui.queue.waiting_runs import Added, Entry, Paused, Queue, Removed, Started
from ftui.queue.wake import wake
from ftui.runs.records.supervisor_records import EngineStarted
from ftui.runs.run_folder import Run, RunFacts
from ftui.runs.state import RunState
from ftui.runs.status import Status, read_status
from ftui.system.files import Lock, UnsafePathError, try_lock
from ftui.system.process_id import Identity, this_process
from tests.support.driving import wait_until
from tests.support.stand_in_queue import CARDS, COMMAND, driver

HERE = this_process()
BEFORE = msgspec.structs.replace(HERE, boot="another")  # the machine was started again since
OTHER_POD = msgspec.structs.replace(HERE, namespace="pid:[1]")


def state(phase: Any, exit_code: int | None = None, **more: Any) -> RunState:
    return RunState(phase=phase, exit_code=exit_code, **({"attempt": 1} | more))


@pytest.mark.parametrize(
    ("status", "by", "num_starts", "how"),
    [
        (Status(state=state("finished", 0)), HERE, 1, "finished"),
        (Status(state=state("failed", 31)), HERE, 1, "failed"),  # the queue goes on after it
        (Status(state=state("parked", PARKED)), HERE, 1, "parked"),  # somebody wants it so
        (Status(state=state("parked", PARKED)), BEFORE, 1, "parked"),
        (Status(state=state("parked", PREEMPTED_SAVED)), HERE, 1, "parked"),  # SIGTERM to this run alone
        (Status(state=state("parked", PREEMPTED_SAVED)), BEFORE, 1, ""),  # a shutdown ended it: it goes on
        (Status(state=state("parked", PREEMPTED_SAVED)), OTHER_POD, 1, ""),
        (Status(state=state("lost")), HERE, 1, ""),  # killed with its supervisor
        (Status(state=state("lost")), BEFORE, 1, ""),
        (Status(state=state("lost", step=7)), HERE, MOST_STARTS, ""),  # it comes further each time
        (Status(state=state("lost")), HERE, MOST_STARTS, "lost, 5 times at step 0"),
        (Status(state=state("parked", PARKED, attempt=0)), HERE, 1, ""),  # its old ending: it was started, not yet seen
        (Status(state=state("training"), engine=HERE), HERE, 1, ""),
        (Status(state=state("finished", 0), supervisor=HERE), HERE, 1, ""),  # its result is being pushed
        (Status(state=state("training"), unreadable="a link"), HERE, 1, "unreadable"),
    ],
)
def test_how_a_run_ended(status: Status, by: Any, num_starts: int, how: str) -> None:
    entry = Entry(Added(run_id="a", name="a", device="cpu"), Started(run_id="a", by=by), num_starts)
    assert how_it_ended(entry, status, HERE) == how


@pytest.fixture
def add(make_run: Any, tmp_path: Path) -> Callable[..., Run]:
    """Puts a run into the queue of this test's folder of runs, as `ftui queue add` does once it has looked at it."""

    def add(name: str, num_cards: int = 1) -> Run:
        run: Run = make_run(name, root=tmp_path / "runs")
        run.facts.write_bytes(msgspec.json.encode(RunFacts(f"id-{name}", name, 0.0, name, queued=True)))
        run.profile.write_text("")
        with QueueFiles(tmp_path / "runs").changing() as pen:
            pen.write(Added(run_id=f"id-{name}", name=name, device="cuda", num_cards=num_cards, memory=20 << 30))
        return run

    return add


def engines(root: Path) -> list[tuple[str, str, float, float]]:
    lines = [json.loads(line) for line in (root / "engines").read_text().splitlines()]
    return sorted((tuple(line) for line in lines), key=lambda line: line[2])


@pytest.mark.slow
def test_killed_twenty_times_it_starts_each_run_once_in_order_and_never_two_on_a_card(
    add: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "COMMAND", [*COMMAND, "dispatcher"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    files = QueueFiles(tmp_path / "runs")
    names = ["one", "two", "both", "bad", "five", "six"]
    runs = [add(name, num_cards=2 if name == "both" else 1) for name in names]
    draw = random.Random(1)
    for number in range(20):
        with monkeypatch.context() as patch:
            if number % 2:
                patch.setenv("DIES_AFTER_A_START", "1")
            dispatcher = wake(files)
        time.sleep(draw.uniform(0.0, 0.4))
        if dispatcher is not None:  # it may have ended by itself
            dispatcher.kill()
            dispatcher.wait()
    if (last := wake(files)) is not None:
        assert last.wait(timeout=120) == 0, "it ends when there is nothing left to do"
    assert files.read() == Queue()
    seen = engines(files.root)
    assert sorted(name for name, *_ in seen) == sorted(names), "each once"
    supervisors = [read_status(run).supervisor for run in runs]
    started = [int(one.started) for one in supervisors if one is not None]
    assert len(started) == len(runs) and started == sorted(started), "in order"
    for card in CARDS:
        on_it = [(begin, end) for _, cards, begin, end in seen if card in cards.split(",")]
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(on_it)), "one at a time"
    assert {name: read_status(run).state.phase for name, run in zip(names, runs, strict=True)} == {
        name: "failed" if name == "bad" else "finished" for name in names
    }


@pytest.mark.slow
def test_any_command_brings_a_killed_dispatcher_back_and_it_goes_on_at_once(
    add: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed between a start and its record: the next one writes that down, and starts what waits."""
    monkeypatch.setattr(waking, "COMMAND", [*COMMAND, "dispatcher"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    files = QueueFiles(tmp_path / "runs")
    for name in ("one", "two"):
        add(name)
    with monkeypatch.context() as patch:
        patch.setenv("DIES_AFTER_A_START", "1")
        killed = wake(files)
    assert killed is not None and killed.wait() == -signal.SIGKILL
    assert not starts_in(files), "it had started one, and could not say so"

    begun = time.monotonic()
    subprocess.run([*COMMAND, "command", "runs"], check=True, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(starts_in(files)) == 2, seconds=30)
    print(f"the next one's second start: {time.monotonic() - begun:.2f} s after the command")
    wait_until(lambda: files.read() == Queue())
    assert sorted(starts_in(files)) == ["id-one", "id-two"]
    assert sorted(name for name, *_ in engines(files.root)) == ["one", "two"], "each once"


def starts_in(files: QueueFiles) -> list[str]:
    """The runs that the journal says were started."""
    lines = [json.loads(line) for line in files.journal.read_text().splitlines()]
    return [line["run_id"] for line in lines if line["kind"] == "started"]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What a dispatcher in this process would start, on two cards that are not there."""
    begun: list[tuple[str, list[str]]] = []

    def launch(run: Run, lock: Lock, cards: list[Lock]) -> None:
        begun.append((run.name, [one.path.stem for one in cards]))

    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("ftui.queue.dispatcher.launch", launch)
    return begun


def test_what_the_machine_has_lost_goes_on_before_what_waits(
    add: Callable[..., Run], append: Any, dead: Identity, tmp_path: Path, starts: list[tuple[str, list[str]]]
) -> None:
    files = QueueFiles(tmp_path / "runs")
    add("first")
    lost = add("lost")
    add("last")
    with files.changing() as pen:
        pen.write(Started(run_id="id-lost", by=BEFORE, cards=["GPU-b"]))
    append(lost.supervisor_log, EngineStarted(identity=dead), attempt=1)
    assert Dispatcher(files).tick()
    assert starts == [("lost", ["GPU-a"]), ("first", ["GPU-b"])]
    queue = files.read()
    assert [entry.added.name for entry in (*queue.running, *queue.waiting)] == ["lost", "first", "last"]


@pytest.mark.parametrize(
    ("happening", "started"),
    [("nothing", ["one", "two"]), ("paused", []), ("removed", ["two"]), ("by hand", ["two"]), ("locked", ["two"]),
     ("card taken", ["one"]), ("a link", ["two"]), ("taken out", ["two"]), ("archived", ["one", "two"]),
     ("full disk", ["two"])],
)  # fmt: skip
def test_what_stands_in_the_way_of_a_start(
    add: Callable[..., Run], append: Any, living: Identity, tmp_path: Path, happening: str, started: list[str],
    starts: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    files, run = QueueFiles(tmp_path / "runs"), add("one")
    add("two")
    if happening == "paused":
        with files.changing() as pen:
            pen.write(Paused())
    elif happening == "removed":
        shutil.rmtree(run.folder)
    elif happening == "by hand":
        append(run.supervisor_log, EngineStarted(identity=living), attempt=1)
    elif happening == "a link":
        run.supervisor_lock.symlink_to(tmp_path / "elsewhere")
    elif happening == "taken out":  # while the dispatcher looks at the cards
        take_out_meanwhile(files, "id-one", monkeypatch)
    elif happening == "archived":
        run.archived.touch()
    elif happening == "full disk":
        fail_for("one", monkeypatch)
    lock = try_lock(run.supervisor_lock) if happening == "locked" else None
    cards = take_cards(["GPU-b"]) if happening == "card taken" else None
    assert Dispatcher(files).tick() == (happening != "paused")
    assert [name for name, _ in starts] == started
    for one in (lock, *(cards or ())):
        if one is not None:
            one.close()
    if happening == "archived":
        assert not run.archived.exists(), "what is started comes back"
    if happening == "a link":
        assert not (tmp_path / "elsewhere").exists() and not files.read().waiting
    if happening == "full disk":
        assert [entry.added.name for entry in files.read().waiting] == ["one"], "it is tried again"
    if happening == "removed":
        assert [entry.added.name for entry in files.read().running] == ["two"]


def take_out_meanwhile(files: QueueFiles, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose_and_take_out(entries: Any) -> Any:
        admission = choose_starts(entries)
        with files.changing() as pen:
            pen.write(Removed(run_id=run_id))
        return admission

    monkeypatch.setattr(dispatching, "choose_starts", choose_and_take_out)


def fail_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume takes nothing for one run."""
    launch = dispatching.launch  # type: ignore[attr-defined]

    def launch_or_fail(run: Run, lock: Any, cards: Any) -> Any:
        if run.name == name:
            raise OSError(errno.ENOSPC, "no space left")
        return launch(run, lock, cards)

    monkeypatch.setattr(dispatching, "launch", launch_or_fail)


def test_a_volume_that_is_away_for_a_while_does_not_end_the_dispatcher(
    add: Callable[..., Run], tmp_path: Path, starts: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Nobody may be there to give the next command. It says so once."""
    files = QueueFiles(tmp_path / "runs")
    add("one")
    answers: Iterator[OSError | bool] = iter([OSError("away"), OSError("away"), True, False])

    def tick(dispatcher: Dispatcher) -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(Dispatcher, "tick", tick)
    monkeypatch.setattr(Dispatcher, "leave", lambda *_: True)
    monkeypatch.setattr(dispatching, "TROUBLE_SECONDS", 0.0)
    monkeypatch.setattr(dispatching, "TICK_SECONDS", 0.0)
    monkeypatch.setenv("SLURM_NODEID", "0")
    assert dispatching.main([str(files.root)]) == 0
    assert capsys.readouterr().err.count("away") == 1
    assert "SLURM_NODEID" not in os.environ, "its runs are of one machine, whoever started it"


def test_a_queue_that_cannot_be_read_keeps_no_other_from_its_dispatcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [QueueFiles(tmp_path / name) for name in ("planted", "mine")]
    queues[0].root.mkdir()
    queues[0].journal.mkdir()
    seen: list[QueueFiles] = []

    def look(files: QueueFiles) -> None:
        seen.append(files)
        files.read()

    monkeypatch.setattr(waking, "all_queues", lambda: queues)
    monkeypatch.setattr(waking, "wake", look)
    with pytest.raises(UnsafePathError, match="planted"):
        waking.wake_dispatchers()
    assert seen == queues
