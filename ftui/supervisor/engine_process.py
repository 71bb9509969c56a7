"""The engine of a run as one process or as several ranks: how many, the environment of each, how they end together.

Rank 0 leads the process group of all of them: a signal to the group reaches every rank, and whoever adopts the engine
needs to know rank 0 only. (torchrun would turn every exit code into 1 and hide ranks in sessions of their own.)
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from ftui.runs.run_folder import Run
from ftui.supervisor.process_tree import PLACE, ExitStatus, send_group, signal_name
from ftui.system.files import open_private
from ftui.system.process_id import Identity, identity_of

LOST_RANK = 75
"""The exit code of a rank that ends because another one is gone; it never stands for the attempt."""

LINGER_SECONDS = 10.0  # how long the others may take once one rank has ended


class RankLostError(Exception):
    """Another rank of this run is gone: nothing can be done but to end."""


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


def start_engine(run: Run, command: Sequence[str], environment: Mapping[str, str], *, size: int) -> EngineProcess:
    """The engine as `size` ranks in a process group of its own, everything it prints appended to engine.log."""
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
                    process_group=group,
                )
            )  # fmt: skip
    finally:
        os.close(log)
    return EngineProcess(processes)
