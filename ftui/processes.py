"""The engine's process as its supervisor sees it: started here or found alive, ended with all that belongs to it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Protocol

import psutil

from ftui.files import open_private
from ftui.identity import Identity, identity_of, is_alive
from ftui.run import Run

How = tuple[int | None, str | None]
"""The exit code, or the name of the signal that ended it; neither where only its parent could have asked."""


class Engine(Protocol):
    """A process that leads a group of its own."""

    @property
    def identity(self) -> Identity: ...

    @property
    def session(self) -> int: ...

    def has_ended(self) -> bool: ...

    def how(self) -> How:
        """How it ended; asked once it has."""
        ...


class Child:
    """An engine that this process started."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.identity = identity_of(process.pid) or Identity("", "", process.pid, "")  # gone before it was looked at
        self.session = os.getsid(0)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def how(self) -> How:
        code = self._process.wait()
        return (code, None) if code >= 0 else (None, signal_name(-code))


class Foundling:
    """An engine whose supervisor is gone: it is nobody's child that we know, and can only be looked at."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        try:
            self.session = os.getsid(identity.pid)
        except ProcessLookupError:  # it ended in this moment
            self.session = -1

    def has_ended(self) -> bool:
        return not is_alive(self.identity)

    def how(self) -> How:
        return None, None


def start_engine(run: Run, command: Sequence[str], environment: dict[str, str]) -> Child:
    """The engine in a process group of its own, everything it prints appended to engine.log."""
    log = open_private(run.engine_log, os.O_WRONLY | os.O_APPEND)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=run.folder, env=environment, process_group=0
        )
    finally:
        os.close(log)
    return Child(process)


def clean_environment() -> dict[str, str]:
    """This process's environment without the switches that change what accelerate does."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name of their own
        return f"signal {number}"


def send_group(engine: Engine, number: int) -> bool:
    """Send a signal to the engine's process group; False when only zombies are left there (Linux, macOS)."""
    try:
        os.killpg(engine.identity.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def members(engine: Engine) -> list[int]:
    """The living processes of the engine's group.

    They are told by group and session: a group's number may be given again, but not inside that session.
    """
    return [pid for pid in psutil.pids() if _belongs(pid, engine)]


def _belongs(pid: int, engine: Engine) -> bool:
    try:
        if os.getpgid(pid) != engine.identity.pid or os.getsid(pid) != engine.session:
            return False
    except (ProcessLookupError, PermissionError):
        return False
    return identity_of(pid) is not None


def kill_left_over(engine: Engine) -> int:
    """Kill what an engine that has ended left in its group, so that nothing of it keeps the GPU; returns how many."""
    left = members(engine)
    return len(left) if left and send_group(engine, signal.SIGKILL) else 0


def kill_with_stacks(engine: Engine, seconds: float) -> None:
    """Let the engine write the stacks of its threads to engine.log, then kill its group."""
    try:
        os.kill(engine.identity.pid, signal.SIGUSR1)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not engine.has_ended():
        time.sleep(min(0.05, seconds))
    if not engine.has_ended():
        send_group(engine, signal.SIGKILL)


def say(line: str) -> None:
    """A line for supervisor.log (standard error); what has no room there is lost, the supervisor goes on."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)
