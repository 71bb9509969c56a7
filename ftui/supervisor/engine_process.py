"""The engine of a run as its supervisor sees it: started here as one process or several ranks, or adopted; and its end.

Rank 0 leads the process group of all of them: a signal to the group reaches every rank, and whoever adopts the engine
needs to know rank 0 only. (torchrun would turn every exit code into 1 and hide ranks in sessions of their own.)
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import psutil

from ftui.runs.run_folder import Run
from ftui.system.files import open_private
from ftui.system.process_id import Identity, identity_of, is_alive

ExitStatus = tuple[int | None, str | None]
"""The exit code, or the name of the signal that ended it; neither where only its parent could have asked."""

PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables with the place of one process of several, in torchrun's names."""

LOST_RANK = 75
"""The exit code of a rank that ends because another one is gone; it never stands for the attempt."""

LINGER_SECONDS = 10.0  # how long the others may take once one rank has ended


class RankLostError(Exception):
    """Another rank of this run is gone: nothing can be done but to end."""


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
        """Its exit code or signal; to be asked once it has ended."""
        ...


class EngineProcess:
    """An engine that this process started: the processes of its ranks, rank 0 first."""

    def __init__(self, processes: "Sequence[subprocess.Popen[bytes]]") -> None:
        self._processes = processes
        leader = processes[0].pid
        self.identity = identity_of(leader) or Identity("", "", leader, "")  # gone before it was looked at
        self.session = os.getsid(0)
        self._since: float | None = None
        self._killed = False

    def has_ended(self) -> bool:
        """Whether all ranks have. Once one is gone the others follow by themselves, or else are made to."""
        codes = [process.poll() for process in self._processes]
        if all(code is not None for code in codes):
            return True
        if codes[0] is None and all(code in (None, 0) for code in codes):
            return False
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since > LINGER_SECONDS:
            self._killed = send_group(self, signal.SIGKILL)
        return False

    def exit_status(self) -> ExitStatus:
        """Rank 0's way, unless it only ended because of another rank: then that one's."""
        leader, *others = [process.wait() for process in self._processes]
        forced = {LOST_RANK, -signal.SIGKILL} if self._killed else {LOST_RANK}
        if leader in forced:
            leader = next((code for code in others if code not in forced | {0}), leader)
        return (leader, None) if leader >= 0 else (None, signal_name(-leader))


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


def start_engine(
    run: Run, command: Sequence[str], environment: Mapping[str, str], *, size: int, keep_open: Sequence[int] = ()
) -> EngineProcess:
    """The engine as `size` ranks in a process group of its own, everything it prints appended to engine.log.

    It inherits the descriptors `keep_open`: locks that are to last as long as any of its processes.
    """
    port = free_port() if size > 1 else 0
    log = open_private(run.engine_log, os.O_WRONLY | os.O_APPEND)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            own = dict(environment) if size == 1 else rank_environment(rank, size, port, environment)
            group = processes[0].pid if processes else 0
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=run.folder, env=own,
                    process_group=group, pass_fds=keep_open,
                )
            )  # fmt: skip
    finally:
        os.close(log)
    return EngineProcess(processes)


def rank_environment(rank: int, size: int, port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of rank `rank` of `size`: its place, in torchrun's names, and the one GPU it sees."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")  # empty: hidden on purpose
    gpus = [str(number) for number in range(size)] if visible is None else [gpu for gpu in visible.split(",") if gpu]
    own = dict(zip(PLACE, (rank, rank, size, "127.0.0.1", port), strict=True))
    gpu = {"CUDA_VISIBLE_DEVICES": gpus[rank] if rank < len(gpus) else ""}
    return dict(environment) | {name: str(value) for name, value in own.items()} | gpu


def free_port() -> int:
    """A port nobody listens on now. Another process may take it before rank 0 does: then the attempt crashes, and the
    next one gets another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def clean_environment() -> dict[str, str]:
    """This process's environment without the switches that change what accelerate does, and without the place of a rank
    (some pods come with one for all their processes)."""
    return {n: value for n, value in os.environ.items() if not n.startswith("ACCELERATE_") and n not in PLACE}


def signal_name(number: int) -> str:
    """The name of a signal: `SIGKILL` for 9, `signal 35` for one without a name."""
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
