"""Engines without their start-up time: a process imports torch and all the rest once, then forks one engine an attempt.

A child is the whole real engine (`ftui.engine.__main__.main`) with its own process group, environment, log and signal
handlers; only the interpreter is not a new one. `python -m tests.support.zygote` reads orders from its stdin, one JSON
object a line, and tells of every engine its pid and in the end its return code.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ftui.runs.run_folder import Run
from ftui.supervisor.engine_process import EngineProcess, rank_environment

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.005  # how often a parent looks after its children
START_SECONDS = 120.0

Hooks = Mapping[str, list[Any]]


def _has_more(descriptor: int, seconds: float | None) -> bool:
    """Whether there is something to read within the time; a worker of many tests has more files open than `select`
    can count."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else 1000 * seconds))


def free_port() -> int:
    """A port nobody listens on now, where ranks are to meet; another process may take it before rank 0 does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Attempt:
    """One engine of a run. Its return code is that of `subprocess`: minus the signal that ended it."""

    def __init__(self, zygote: "Zygote", run: Run, number: int) -> None:
        self._zygote = zygote
        self.run = run
        self.number = number
        self.pid = 0
        self.code: int | None = None
        self.ended = 0.0
        """When it was known to have ended (a reading of time.monotonic)."""

    def poll(self) -> int | None:
        """The return code; `None` while it is running."""
        self._zygote.read(0)
        return self.code

    def wait(self, timeout: float = 60) -> int:
        """The return code once it has ended; one that takes longer is killed, and the test fails."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill(signal.SIGKILL)
                raise AssertionError(f"{self.run.name} has not ended in {timeout:g} s:\n{tail_of(self.run)}")
            self._zygote.read(0.05)
        assert self.code is not None
        return self.code

    def wait_a_little(self) -> None:
        """At most 10 ms."""
        self._zygote.read(0.01)

    def kill(self, number: int) -> None:
        """Send a signal; nothing happens where the engine has ended."""
        self._zygote.order({"do": "kill", "number": self.number, "signal": int(number)})


class RankAttempt(Attempt):
    """All ranks of a run as one engine, whose end is told as the supervisor of a run tells it."""

    def __init__(self, ranks: Sequence[Attempt], victim: int | None) -> None:
        super().__init__(ranks[0]._zygote, ranks[0].run, ranks[0].number)
        self._ranks, self._victim, self.pid = ranks, victim, ranks[0].pid
        processes: Any = ranks
        self._engine = EngineProcess(processes)

    def poll(self) -> int | None:
        """The return code once all ranks have ended; `None` before."""
        if not self._engine.has_ended():
            return None
        code, name = self._engine.exit_status()
        self.code = code if name is None else -signal.Signals[name]
        return self.code

    def kill(self, number: int) -> None:
        """Send a signal to all ranks; SIGKILL to the victim only, where there is one."""
        for place, rank in enumerate(self._ranks):
            if number != signal.SIGKILL or self._victim in (None, place):
                rank.kill(number)


class Zygote:
    """The tests' side: starts engines in no time. Closed at the end of a `with` block, with all that still live."""

    def __init__(self, env: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.support.zygote"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._attempts: dict[int, Attempt] = {}
        self._pending = b""
        self._is_ready = False
        self._until(lambda: self._is_ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def start_ranks(
        self, run: Run, env: Mapping[str, str], size: int, *, attempt: int = 1, token: str = "",
        hooks: Hooks | None = None, victim: int | None = None,
    ) -> RankAttempt:  # fmt: skip
        """`size` ranks of a run in one process group. `hooks` are those of the victim, of each where it is `None`."""
        port, ranks = free_port(), list[Attempt]()
        for rank in range(size):
            place, own = rank_environment(rank, size, port, env), hooks if victim in (rank, None) else None
            group = ranks[0].pid if ranks else 0
            ranks.append(self.start(run, place, attempt=attempt, token=token, hooks=own, group=group))
        return RankAttempt(ranks, victim)

    def start(
        self, run: Run, env: Mapping[str, str], *, attempt: int = 1, token: str = "", hooks: Hooks | None = None,
        group: int = 0,
    ) -> Attempt:  # fmt: skip
        """An engine for the run, armed with `hooks` (names and arguments of tests/support/sabotage.py), in a process
        group of its own or in that of another one."""
        started = Attempt(self, run, len(self._attempts))
        self._attempts[started.number] = started
        own = {"FTUI_ATTEMPT": str(attempt), "FTUI_TOKEN": token}
        order = {
            "do": "start",
            "number": started.number,
            "run": str(run.folder),
            "env": dict(env) | own,
            "group": group,
        }
        self.order(order | {"hooks": dict(hooks or {})})
        self._until(lambda: started.pid != 0)
        return started

    def order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def read(self, timeout: float) -> None:
        """Take in what the process tells, waiting at most `timeout` seconds for it."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while _has_more(descriptor, timeout):
            data = os.read(descriptor, 65536)
            assert data, f"the zygote has ended ({self._process.wait()})"
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            timeout = 0

    def _take(self, news: dict[str, Any]) -> None:
        if "ready" in news:
            self._is_ready = True
            return
        attempt = self._attempts[news["number"]]
        if "pid" in news:
            attempt.pid = news["pid"]
        else:
            attempt.code, attempt.ended = news["code"], time.monotonic()

    def _until(self, true: Any) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not true():
            assert time.monotonic() < deadline, "the zygote does not answer"
            self.read(0.5)


def tail_of(run: Run, length: int = 3000) -> str:
    """The end of a run's engine.log."""
    return run.engine_log.read_text(errors="replace")[-length:] if run.engine_log.exists() else "(no log)"


def serve() -> None:
    """Import everything, then fork an engine for every order until stdin ends."""
    from ftui.engine.system.libraries import import_libraries, quick_imports

    with quick_imports():
        import_libraries()
        import peft
        import torch
        import transformers

        import ftui.engine.recipe
        import tests.support.sabotage

    assert all([peft, transformers, ftui.engine.recipe, tests.support.sabotage])
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    living: dict[int, int] = {}  # pid: number
    _tell(answers, ready=True)
    pending = b""
    while True:
        if _has_more(0, LOOK_SECONDS if living else None):
            data = os.read(0, 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _obey(json.loads(line), living, answers)
        for pid in list(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _tell(answers, number=living.pop(pid), code=os.waitstatus_to_exitcode(status))
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def _tell(descriptor: int, **news: Any) -> None:
    os.write(descriptor, json.dumps(news).encode() + b"\n")


def _obey(order: dict[str, Any], living: dict[int, int], answers: int) -> None:
    if order["do"] == "kill":
        for pid in [pid for pid, number in living.items() if number == order["number"]]:
            os.kill(pid, order["signal"])  # not reaped yet: the pid is still that of our child
        return
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(answers)
        _become_engine(order)
    os.setpgid(pid, order["group"])  # here, too: another rank may join it at once
    living[pid] = order["number"]
    _tell(answers, number=order["number"], pid=pid)


def _become_engine(order: dict[str, Any]) -> None:
    """Be an engine as if newly started, and never return."""
    code = 1
    try:
        os.setpgid(0, order["group"])
        _take_descriptors(Path(order["run"]) / "engine.log")
        os.environ.clear()
        os.environ.update(order["env"])
        from ftui.engine.__main__ import main
        from ftui.engine.system.environment import settle_environment
        from tests.support.sabotage import arm

        settle_environment()
        for name, arguments in order["hooks"].items():
            arm(name, arguments)
        code = main([order["run"]])
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            getattr(stream, "finish", stream.flush)()
        os._exit(code)


def _take_descriptors(log: Path) -> None:
    """stdin from nowhere, stdout and stderr to the log, as the supervisor gives them."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)


if __name__ == "__main__":
    serve()
