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
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from ftui.runs.run_folder import Run
from ftui.system.files import open_private
from ftui.system.process_id import Identity, identity_of, is_alive

ExitStatus = tuple[int | None, str | None]
"""The exit code, or the name of the signal that ended it; neither where only its parent could have asked."""

PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables with the place of one process of several, in torchrun's names."""

LISTENER = "FTUI_LISTENER"
"""The descriptor of the socket where all ranks meet, for rank 0: nobody else can take its port."""

KEEPER = "FTUI_KEEPER"
"""The process that a rank of another node ends with: nobody else would end it."""

OWN_FOLDER = "FTUI_OWN_FOLDER"
"""Set for the ranks of a node that does not see node 0's folder of the run."""

SECRET_VARIABLE = "FTUI_NODE_SECRET"
"""What supervisor and keepers prove each other that they know, for those who name it themselves."""

LOST_RANK = 75
"""The exit code of a rank that ends because another one is gone; it never stands for the attempt."""

LINGER_SECONDS = 10.0  # how long the others may take once one rank has ended


class Meeting(NamedTuple):
    """Which of `size` ranks a machine starts, `first` and those after it, and where all of them meet."""

    size: int = 1
    first: int = 0
    number: int = 1
    address: str = "127.0.0.1"
    port: int = 0


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

    def codes(self) -> list[int]:
        """The return codes of all ranks; to be asked once it has ended."""
        return [process.wait() for process in self._processes]

    def exit_status(self) -> ExitStatus:
        """Rank 0's way, unless it only ended because of another rank: then that one's."""
        leader, *others = self.codes()
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
    run: Run,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    size: int = 1,
    meeting: Meeting | None = None,
    listener: socket.socket | None = None,
    log: Path | None = None,
    keep_open: Sequence[int] = (),
) -> EngineProcess:
    """The engine as `size` ranks in a process group of its own, everything it prints appended to engine.log or `log`.

    `meeting` has the ranks of this machine where there are several machines, `listener` the socket where rank 0 waits
    for all; without them it makes its own. Ranks inherit the descriptors `keep_open`: locks that are to last as long as
    any of them.
    """
    with contextlib.ExitStack() as stack:
        output = open_private(log or run.engine_log, os.O_WRONLY | os.O_APPEND)
        stack.callback(os.close, output)
        if listener is None and meeting is None and size > 1:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if meeting is None:
            meeting = Meeting(size, 0, size, port=listener.getsockname()[1] if listener else 0)
        processes: list[subprocess.Popen[bytes]] = []
        for rank in range(meeting.first, meeting.first + meeting.number):
            own, descriptors = dict(environment), [*keep_open]
            if meeting.size > 1:
                own = rank_environment(rank, meeting.size, meeting.port, environment, meeting)
            if rank == 0 and listener is not None:
                descriptors.append(listener.fileno())
                own[LISTENER] = str(listener.fileno())
            group = processes[0].pid if processes else 0
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=run.folder, env=own,
                    process_group=group, pass_fds=descriptors,
                )
            )  # fmt: skip
    return EngineProcess(processes)


def rank_environment(
    rank: int, size: int, port: int, environment: Mapping[str, str], meeting: Meeting | None = None
) -> dict[str, str]:
    """The environment of a rank: its place, in torchrun's names, and the one GPU it sees.

    All are on this machine, and meet at `port`, unless `meeting` says otherwise.
    """
    meeting = meeting or Meeting(size, 0, size, port=port)
    visible = environment.get("CUDA_VISIBLE_DEVICES")  # empty: hidden on purpose
    local = rank - meeting.first
    gpus = [str(n) for n in range(meeting.number)] if visible is None else [gpu for gpu in visible.split(",") if gpu]
    place = (rank, local, size, meeting.number, meeting.address, port)
    own = dict(zip(PLACE, place, strict=True))
    gpu = {"CUDA_VISIBLE_DEVICES": gpus[local] if local < len(gpus) else ""}
    return dict(environment) | {name: str(value) for name, value in own.items()} | gpu


def clean_environment() -> dict[str, str]:
    """This process's environment without the switches that change what accelerate does, without the place of a rank
    (some pods come with one for all their processes), and without the secret of the nodes, which is nothing to it."""
    own = (*PLACE, SECRET_VARIABLE, OWN_FOLDER)
    return {n: value for n, value in os.environ.items() if not n.startswith("ACCELERATE_") and n not in own}


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
