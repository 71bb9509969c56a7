"""The control group (version 2) of this process: what a container allows, where the host would tell more."""

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cgroup_folder() -> Path | None:
    """This process's control group (version 2) as far as it can be seen from here; `None` where there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if inside is None:
        return None
    folder = _CGROUP / inside.lstrip("/")
    # Inside a container the path may be the host's, and the container's own group stands at the mount point.
    return next((f for f in (folder, _CGROUP) if (f / "memory.events").is_file()), None)


def read_number(folder: Path | None, name: str) -> int | None:
    """The number in a file of a control group; `None` when hidden or `max`."""
    if folder is None:
        return None
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None


def counter(folder: Path | None, name: str, key: str) -> int | None:
    """One `key value` line of a file of a control group."""
    if folder is None:
        return None
    try:
        values = dict(line.split() for line in (folder / name).read_text().splitlines())
        return int(values[key])
    except (OSError, ValueError, KeyError):
        return None


def oom_kills() -> int | None:
    """Processes of this control group the kernel has killed for want of memory; `None` where that is hidden."""
    return counter(cgroup_folder(), "memory.events", "oom_kill")
