"""sbatch, squeue, sacct and scancel of a cluster that is one machine: jobs of arrays are really run, end at their limit
of time, are preempted and requeued. Links with these names lead here; what the cluster knows is in $STAND_IN_SLURM.

A job is a file `ID_TASK.STATE`. `preempt` in the folder names a job that has to make room: it is told, killed, and
runs again. `limit` in the folder has the seconds after which a job that runs is told to end.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ.get("STAND_IN_SLURM", "."))
GRACE_SECONDS = 5.0  # between being told and being killed
PROGRAMS = ("sbatch", "squeue", "sacct", "scancel")


def option(name: str, words: list[str]) -> str:
    """`--name=value` among the words, the last one; empty where there is none."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return found[-1] if found else ""


def sbatch(words: list[str]) -> int:
    script = sys.stdin.read()
    in_script = re.findall(r"^#SBATCH (--\S+)", script, re.M)
    if option("partition", in_script) == "nowhere":
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        return 1
    if "--test-only" in words:
        return 0
    if (HOME / "down").exists():
        print("sbatch: error: Unable to contact slurm controller (connect failure)", file=sys.stderr)
        return 1
    job = 100 + len(list(HOME.glob("*.sh")))
    (HOME / f"{job}.sh").write_text(script)
    (HOME / f"{job}.name").write_text(option("job-name", in_script))
    for task in option("array", words).split(","):
        (HOME / f"{job}_{task}.PENDING").touch()
        subprocess.Popen(
            [sys.executable, __file__, "slurmd", str(job), task, option("output", in_script)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    print(job)
    return 0


def slurmd(job: str, task: str, output: str) -> int:
    """Run a job as often as it is requeued."""
    own, running = HOME / f"{job}_{task}.PENDING", HOME / f"{job}_{task}.RUNNING"
    environment = os.environ | {
        "SLURM_JOB_ID": job, "SLURM_ARRAY_TASK_ID": task, "SLURM_NODEID": "0", "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": "here", "SLURM_TASKS_PER_NODE": "1",
    }  # fmt: skip
    while own.exists():
        if (HOME / "full").exists():
            time.sleep(0.02)
            continue
        own.rename(running)
        with open(output.replace("%A", job).replace("%a", task), "a") as log:
            process = subprocess.Popen(
                ["bash", str(HOME / f"{job}.sh")], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        was_preempted = watch(process, f"{job}_{task}")
        state = "PENDING" if was_preempted else "COMPLETED" if process.returncode == 0 else "FAILED"
        with open(HOME / "ended", "a") as file:
            file.write(f"{job}_{task} {state} {process.returncode}\n")
        running.rename(own.with_suffix(f".{state}"))
    return 0


def watch(process: "subprocess.Popen[bytes]", job: str) -> bool:
    """Tell it to end at its limit of time, or where another job needs the place; whether it was that."""
    begun, told, was_preempted = time.monotonic(), 0.0, False
    while process.poll() is None:
        limit, preempt = HOME / "limit", HOME / "preempt"
        if preempt.exists() and preempt.read_text() == job:
            preempt.unlink()
            was_preempted = True
        is_over = limit.exists() and time.monotonic() - begun > float(limit.read_text())
        if (was_preempted or is_over) and not told:
            told = time.monotonic()
            process.send_signal(signal.SIGTERM)
        if told and time.monotonic() - told > GRACE_SECONDS:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    return was_preempted


def squeue(words: list[str]) -> int:
    for path in sorted([*HOME.glob("*.PENDING"), *HOME.glob("*.RUNNING")]):
        if (HOME / f"{path.stem.partition('_')[0]}.name").read_text() == option("name", words):
            print(path.stem)
    return 0


def sacct(words: list[str]) -> int:
    job = option("jobs", words)
    ended = [line.split() for line in (HOME / "ended").read_text().splitlines()]
    for _, state, code in [line for line in ended if line[0] == job][-1:]:
        print(f"{state}|{code}:0")
    return 0


def scancel(words: list[str]) -> int:
    for path in HOME.glob(f"*.{option('state', words)}"):
        path.rename(path.with_suffix(".CANCELLED"))
    return 0


def install(folder: Path) -> Path:
    """Links to these programs in a folder; `PATH` and `STAND_IN_SLURM` have to name it."""
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


if __name__ == "__main__":
    sys.exit(slurmd(*sys.argv[2:]) if sys.argv[1] == "slurmd" else globals()[sys.argv[1]](sys.argv[2:]))
