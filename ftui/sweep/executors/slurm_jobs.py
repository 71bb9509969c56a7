"""Trials as jobs of a SLURM cluster: one script a sweep, whose array index is the number of a trial.

SLURM itself is asked which trials wait or run, by the name of their jobs: a process that is killed after `sbatch` and
before it could note the job sends none twice.
"""

import os
import shlex
import subprocess
import sys
import time
import zlib
from collections.abc import Collection, Sequence

from ftui.profile.schema import Profile
from ftui.sweep.executors import executor
from ftui.sweep.executors.executor import ExecutorError, last_line, read_profile
from ftui.sweep.executors.run_settings import RunSettings
from ftui.sweep.sweep_files import SweepFiles
from ftui.system.files import replace_file
from ftui.text import shown

GRACE_SECONDS = 120  # before a job's limit of time: enough to save
LOOK_SECONDS = 5.0  # between two questions to SLURM, which many users share
ANSWER_SECONDS = 60.0
MOST_AT_A_TIME = 8
OUTPUT = "slurm-{job}_{trial}.out"


class SlurmJobs:
    """Sends trials by `sbatch --array`, and follows them by `squeue`."""

    is_local = False

    def __init__(self, files: SweepFiles, settings: RunSettings) -> None:
        self._files, self._settings = files, settings
        self._sent: set[int] = set()
        self._next_look = 0.0

    def check(self, profile: Profile) -> None:
        """Have SLURM look at the script without running it.

        Raises:
            ExecutorError: its programs are not here, or it would refuse the job.
        """
        call("sbatch", "--test-only", "--array=0", script=job_script(self._files, self._settings, profile))

    def num_parallel(self, profile: Profile) -> int:
        """A few: how many run at a time is up to the cluster."""
        return MOST_AT_A_TIME

    def send(self, trials: Sequence[int]) -> str:
        """One array job of these trials. Raises ExecutorError."""
        script = job_script(self._files, self._settings, read_profile(self._files))
        replace_file(self._files.folder / "job.sh", script.encode())  # what people look at
        array = ",".join(map(str, trials))
        answer = call("sbatch", "--parsable", f"--array={array}", script=script)
        self._sent |= {*trials}
        self._next_look = time.monotonic() + LOOK_SECONDS
        return answer.strip().partition(";")[0]

    def find_sent(self) -> Collection[int]:
        """Those whose jobs SLURM has and has not ended. Raises ExecutorError."""
        if time.monotonic() >= self._next_look:
            options = ("--noheader", "--array", "--format=%i", f"--name={job_name(self._files)}")
            answer = call("squeue", *options, f"--user={os.getuid()}")
            ids = [line.strip().partition("_")[2] for line in answer.splitlines()]
            self._sent = {int(one) for one in ids if one.isdecimal()}
            self._next_look = time.monotonic() + LOOK_SECONDS
        return self._sent

    def withdraw(self) -> None:
        """Cancel the jobs that wait. Raises ExecutorError."""
        call("scancel", "--state=PENDING", f"--name={job_name(self._files)}", f"--user={os.getuid()}")

    def explain(self, trial: int, job: str) -> str:
        """How the job ended, as far as SLURM keeps it, and the last line of its output."""
        try:
            options = ("--noheader", "--parsable2", "--allocations", "--format=State,ExitCode")
            state, _, code = call("sacct", f"--jobs={job}_{trial}", *options).strip().partition("|")
        except ExecutorError:  # a cluster without accounting
            state, code = "", ""
        ending = f"{state.lower()}, exit code {code.partition(':')[0]}" if state else ""
        printed = last_line(self._files.folder / OUTPUT.format(job=job, trial=trial))
        return "; ".join(part for part in (ending, printed) if part)


def job_name(files: SweepFiles) -> str:
    """The name of a sweep's jobs; no two sweeps share it."""
    return f"ftui-{files.name}-{zlib.crc32(os.fsencode(files.folder)):08x}"


def job_script(files: SweepFiles, settings: RunSettings, profile: Profile) -> str:
    """The script of every trial: SLURM_ARRAY_TASK_ID says which."""
    output = str(files.folder / OUTPUT.format(job="%A", trial="%a"))
    gpus, cpus, memory = settings.gpus_of(profile), settings.cpus, settings.memory_gb
    options = {
        "job-name": job_name(files),
        "nodes": "1",
        "ntasks": "1",
        "gpus-per-node": str(gpus or ""),
        "cpus-per-task": str(cpus or ""),
        "mem": f"{memory * 1024:.0f}M" if memory else "",
        "partition": settings.partition,
        "account": settings.account,
        "time": settings.time,
        "signal": f"B:TERM@{GRACE_SECONDS}",
        "open-mode": "append",
        "output": shlex.quote(output),
    }
    head = [f"#SBATCH --{name}={value}" for name, value in options.items() if value]
    command = [sys.executable, *executor.NODE_PROGRAM, str(files.folder)]
    body = [
        "#SBATCH --requeue",
        *(line for line in settings.lines if line.startswith("#SBATCH")),
        f"# The sweep submits it with --array=TRIALS as they are asked. {GRACE_SECONDS} s before the time is over, or",
        "# when another job takes its place, the trial saves and ends; it goes on in another job.",
        *(line for line in settings.lines if not line.startswith("#SBATCH")),
        f'exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"',
    ]
    return "\n".join(["#!/bin/bash", *head, *body, ""])


def call(program: str, *arguments: str, script: str = "") -> str:
    """What one of SLURM's programs prints.

    Raises:
        ExecutorError: it is not here, does not answer, or refuses.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SQUEUE_"))}
    try:
        done = subprocess.run(
            [program, *arguments], input=script, capture_output=True, text=True, timeout=ANSWER_SECONDS,
            env=environment, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        hint = "`ftui sweep` with slurm is given where jobs are submitted: a login node. --print prints the script."
        raise ExecutorError(f"There is no {program} on this machine.", hint=hint) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExecutorError(f"{program} does not answer: {error}") from error
    if done.returncode:
        words = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise ExecutorError(f"{program}: {shown(words) or f'exit code {done.returncode}'}")
    return done.stdout
