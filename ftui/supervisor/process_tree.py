"""The engine's process as its supervisor sees it: started here or found alive, ended with all that belongs to it."""

import contextlib
import os
import signal
import sys
import time
from typing import Protocol

import psutil

from ftui.system.process_id import Identity, identity_of, is_alive

ExitStatus = tuple[int | None, str | None]
"""The exit code, or the name of the signal that ended it; neither where only its parent could have asked."""


PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables with the place of one process of several, in torchrun's names."""


class Engine(Protocol):
    """A process that leads a group of its own."""

    @property
    def identity(self) -> Identity:
        """Rank 0, whose pid is also the number of the group."""
        ...

    @property
    def session(self) -> int:
        """The id of its session; -1 where it had ended before anybody could ask."""
        ...

    def has_ended(self) -> bool:
        """Whether it is gone; of several ranks, all of them."""
        ...

    def exit_status(self) -> ExitStatus:
        """How it ended; asked once it has."""
        ...


class AdoptedEngine:
    """An engine whose supervisor is gone: it is nobody's child that we know, and can only be looked at."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        try:
            self.session = os.getsid(identity.pid)
        except ProcessLookupError:  # it ended in this moment
            self.session = -1

    def has_ended(self) -> bool:
        """Whether the process is gone, by its identity: a pid alone may be another's by now."""
        return not is_alive(self.identity)

    def exit_status(self) -> ExitStatus:
        """Unknown: the system tells only a parent how a process ended."""
        return None, None


def clean_environment() -> dict[str, str]:
    """This process's environment without the switches that change what accelerate does, and without the place of a rank
    (some pods come with one for all their processes)."""
    return {n: value for n, value in os.environ.items() if not n.startswith("ACCELERATE_") and n not in PLACE}


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 35` for one without a name."""
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
    """The running processes of the engine's group.

    Group and session identify them: a group's number may be reused, but not inside that session.
    """
    return [pid for pid in psutil.pids() if _belongs(pid, engine)]


def _belongs(pid: int, engine: Engine) -> bool:
    try:
        if os.getpgid(pid) != engine.identity.pid or os.getsid(pid) != engine.session:
            return False
    except (ProcessLookupError, PermissionError):
        return False
    return identity_of(pid) is not None


def kill_leftovers(engine: Engine) -> int:
    """Kill what an engine that has ended left in its group, so that nothing of it keeps the GPU; returns how many."""
    leftovers = members(engine)
    return len(leftovers) if leftovers and send_group(engine, signal.SIGKILL) else 0


def kill_with_stacks(engine: Engine, seconds: float) -> None:
    """Let all of the engine write the stacks of its threads to engine.log, then kill it."""
    if not send_group(engine, signal.SIGUSR1):
        return
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not engine.has_ended():
        time.sleep(min(0.05, seconds))
    if not engine.has_ended():
        send_group(engine, signal.SIGKILL)


def say(line: str) -> None:
    """A line for supervisor.log (standard error); what does not fit on the disk is lost, the supervisor continues."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)
