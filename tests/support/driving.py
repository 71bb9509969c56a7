"""Watching and waiting for a run that the whole program trains."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.runs.status import is_running as status_is_running
from ftui.runs.status import read_status
from tests.support.bench import Workbench, records
from tests.support.pty_screen import Screened, on_screen

LONG = (
    "--set", "train.num_train_epochs=4000", "--set", "train.warmup_steps=0", "--set", "checkpoint.save_total_limit=4",
)  # fmt: skip


def status(bench: Workbench, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(bench.ftui("status", name, "--json").stdout)
    return answer


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def steps(run: Run) -> list[Step]:
    return [r for r in Tail(run.metrics).read() if isinstance(r, Step)]


def started(bench: Workbench, name: str, *options: str) -> Run:
    """A long run that has made some steps."""
    result = bench.ftui("--run", str(bench.profile(name)), *LONG, *options, "--detach")
    assert result.returncode == 0, result.stderr
    run = bench.run(name)
    wait_until(lambda: len(steps(run)) >= 12)
    return run


def is_running(answer: dict[str, Any]) -> bool:
    """Whether the processes a status names are there (zombies are not)."""
    stats = [Path(f"/proc/{answer[who]['pid']}/stat") for who in ("engine", "supervisor") if answer.get(who)]
    return any(stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" for stat in stats)


def wait_for_end(bench: Workbench, run: Run) -> dict[str, Any]:
    """The status once nobody works on the run any more.

    It is looked at from here: a command for each look would take the processor from the run that is waited for.
    """

    def has_ended() -> bool:
        found = read_status(run)
        if found.unwatched:  # as after any command, it gets a new supervisor
            status(bench, run.name)
        return not status_is_running(found)

    wait_until(has_ended)
    return status(bench, run.name)


def last(run: Run, kind: type[Any]) -> Any:
    return next(r for r in reversed(records(run)) if isinstance(r, kind))


def at_screen(bench: Workbench, *arguments: str, **env: str) -> Screened:
    """`ftui` in a terminal of its own, in the bench's folder."""
    command = [sys.executable, "-m", "ftui", *arguments]
    return on_screen(command, bench.env | {"TERM": "xterm-256color"} | env, 80, 24, cwd=str(bench.folder))
