"""Several processes as one engine: what each is told, and whose end stands for all of them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftui.runs.run_folder import Run
from ftui.supervisor import engine_process
from ftui.supervisor.engine_process import LOST_RANK, EngineProcess, rank_environment, send_group, start_engine
from ftui.supervisor.settings import read_settings

FORCED = "import time; time.sleep(60)"


def engine(*programs: str) -> EngineProcess:
    """Ranks that run these lines of Python, in one process group."""
    started: list[subprocess.Popen[bytes]] = []
    for program in programs:
        group = started[0].pid if started else 0
        started.append(subprocess.Popen([sys.executable, "-c", program], process_group=group))
    return EngineProcess(started)


def ended(child: EngineProcess) -> tuple[int | None, str | None]:
    deadline = time.monotonic() + 20
    while not child.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return child.exit_status()


def exits(code: int, after: float = 0.0) -> str:
    return f"import os, time; time.sleep({after}); os._exit({code})"


@pytest.mark.parametrize(
    ("programs", "exit_status"),
    [
        ([exits(0)], (0, None)),
        ([exits(31)], (31, None)),
        ([exits(0, 0.2), exits(0)], (0, None)),
        ([exits(11), exits(LOST_RANK, 0.2)], (11, None)),
        ([exits(LOST_RANK, 0.3), exits(41)], (41, None)),
        ([exits(LOST_RANK, 0.3), exits(LOST_RANK, 0.2), exits(42)], (42, None)),
        ([exits(LOST_RANK, 0.3), "import os; os.kill(os.getpid(), 9)"], (None, "SIGKILL")),
        (["import os; os.kill(os.getpid(), 15)", exits(LOST_RANK, 0.2)], (None, "SIGTERM")),
        ([exits(LOST_RANK), exits(LOST_RANK)], (LOST_RANK, None)),
    ],
)
def test_whose_end_it_is(programs: list[str], exit_status: tuple[int | None, str | None]) -> None:
    assert ended(engine(*programs)) == exit_status


def test_who_does_not_follow_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that hangs when another has ended is killed; the way the first one ended is what counts."""
    monkeypatch.setattr(engine_process, "LINGER_SECONDS", 0.2)
    assert ended(engine(FORCED, exits(41))) == (41, None)
    assert ended(engine(exits(20), FORCED)) == (20, None)


def test_a_rank_that_is_done_early_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "LINGER_SECONDS", 0.1)
    assert ended(engine(exits(10, 0.6), exits(0))) == (10, None)


def test_each_rank_is_told_its_place_and_sees_one_gpu() -> None:
    told = rank_environment(1, 2, 4711, {"HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "3,5"})
    assert told == {
        "HOME": "/home/me", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711", "CUDA_VISIBLE_DEVICES": "5",
    }  # fmt: skip
    assert rank_environment(1, 2, 1, {})["CUDA_VISIBLE_DEVICES"] == "1"
    assert rank_environment(2, 3, 1, {"CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == ""
    assert rank_environment(0, 2, 1, {"CUDA_VISIBLE_DEVICES": ""})["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("[hardware]\nnum_processes = 3\n", 3),
        ("[hardware]\n", 1),
        ("", 1),
        ("hardware = 3", 1),
        ("[hardware]\nnum_processes = 'many'", 1),
        ("[hardware\n", 1),
    ],
)
def test_how_many_ranks_a_profile_asks_for(text: str, number: int, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.profile.write_text(text)
    assert read_settings(run).num_processes == number


def test_the_group_is_that_of_rank_0_and_a_signal_reaches_all(tmp_path: Path) -> None:
    run = Run(tmp_path)
    program = "import os, time; print(os.environ['RANK'], os.getpgrp(), flush=True); time.sleep(60)"
    child = start_engine(run, [sys.executable, "-c", program], {}, size=2)
    deadline = time.monotonic() + 20
    while len(lines := run.engine_log.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sorted(lines) == [f"{rank} {child.identity.pid}" for rank in range(2)]
    assert send_group(child, signal.SIGTERM)
    assert ended(child) == (None, "SIGTERM")
