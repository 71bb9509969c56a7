"""Which process wrote this? A pid alone is reused after a pod restart; this names one process of one boot."""

import os
import sys
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """One process for good: the boot, the pid namespace, the pid, and when the process started (clock ticks)."""

    boot: str
    namespace: str
    pid: int
    started: str


_ON_LINUX: bool = sys.platform == "linux"


def _linux_start_ticks(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the command name before it may hold spaces and parentheses
    return None if fields[0] in "ZX" else fields[19]


def identity_of(pid: int) -> Identity | None:
    """The identity of a running process, `None` when there is none (a zombie counts as gone)."""
    if _ON_LINUX:
        start = _linux_start_ticks(pid)
        if start is None:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return Identity(boot, os.readlink("/proc/self/ns/pid"), pid, start)
    import psutil  # 50 ms; only where there is no /proc

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Identity(str(psutil.boot_time()), "", pid, str(process.create_time()))
    except psutil.NoSuchProcess:
        return None


def this_process() -> Identity:
    """The identity of the process that calls this."""
    identity = identity_of(os.getpid())
    assert identity is not None, "a running process has an identity"
    return identity


def is_alive(identity: Identity | None) -> bool:
    """Whether exactly this process still runs, seen from this boot and pid namespace."""
    return identity is not None and identity_of(identity.pid) == identity
