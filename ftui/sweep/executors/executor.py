"""The one thing that a sweep asks of where its trials run: have these started, which of them are with you.

Whatever a scheduler says, a run's folder is the truth about it, and its lock decides who works on it.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from ftui.errors import HardwareError
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.sweep.executors.run_settings import RunSettings
from ftui.sweep.sweep_files import SweepFiles
from ftui.text import shown

NODE_PROGRAM = ["-P", "-m", "ftui.sweep.executors"]
"""What Python is given on a node, before the folder of the sweep and the number of a trial."""


class ExecutorError(HardwareError):
    """A cluster's scheduler is not here, does not answer, or refuses a job."""


class Executor(Protocol):
    """Starts runs that have been made, each in its folder, which all machines see at the same path.

    `is_local`: the queue of this folder of runs has them, which is a journal of its own.
    """

    is_local: bool

    def check(self, profile: Profile) -> None:
        """See that runs of this profile can be started at all; before the first, the sweep has no folder yet.

        Raises:
            ExecutorError: they cannot.
        """

    def num_parallel(self, profile: Profile) -> int:
        """How many runs of this profile are sent at a time where the sweep does not say it."""

    def send(self, trials: Sequence[int]) -> str:
        """Have the runs of these trials started as soon as there is room; what the scheduler calls that.

        Raises:
            ExecutorError, DiskError: nothing was sent; it may be tried again.
        """

    def find_sent(self) -> Collection[int]:
        """Trials that wait or run there now. Whoever wants to know what a run came to asks this first.

        Raises:
            ExecutorError: it does not answer.
        """

    def withdraw(self) -> None:
        """Take back what waits: the sweep has ended."""

    def explain(self, trial: int, job: str) -> str:
        """Why a trial that was sent as `job` has never begun, as far as it can be told; may be empty."""


def make_executor(files: SweepFiles, settings: RunSettings, visible: str | None) -> Executor:
    """The executor of a sweep. Its libraries are loaded here."""
    if settings.executor == "slurm":
        from ftui.sweep.executors.slurm_jobs import SlurmJobs

        return SlurmJobs(files, settings)
    if settings.executor == "ray":
        from ftui.sweep.executors.ray_cluster import RayCluster

        return RayCluster(files, settings)
    from ftui.sweep.executors.local_queue import LocalQueue

    return LocalQueue(files, visible)


def read_profile(files: SweepFiles) -> Profile:
    """What all trials have in common; raises ProfileError where somebody has edited the sweep's copy."""
    return resolve(files.profile).profile


def last_line(output: Path) -> str:
    """The last line of what a job has printed, safe to show; empty where there is none."""
    try:
        lines = output.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return shown(next((line.strip() for line in reversed(lines) if line.strip()), ""))
