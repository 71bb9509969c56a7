"""Which process wrote this? A pid alone is reused after a pod restart; this names one process of one boot."""

import os
import sys
from functools import cache
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """One process for good: the boot, the pid namespace, the pid, and when the process started (clock ticks)."""

    boot: str
    namespace: str
    pid: int
    started: str


_ON_LINUX: bool = sys.platform == "linux"
STAT_BYTES = 4096  # more than /proc/PID/stat has


@cache
def _place() -> tuple[str, str]:
    """The boot and the pid namespace of this process, which never change."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")


def _linux_start_ticks(pid: int) -> str | None:
    try:  # a file object would triple the cost, and a list of 50 runs takes hundreds of looks
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        stat = os.read(descriptor, STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    # The command name before it may hold spaces, parentheses and any bytes.
    fields = stat.decode(errors="replace").rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def identity_of(pid: int) -> Identity | None:
    """The identity of a running process, `None` when there is none (a zombie counts as gone)."""
    if _ON_LINUX:
        start = _linux_start_ticks(pid)
        if start is None:
            return None
        return Identity(*_place(), pid, start)
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
