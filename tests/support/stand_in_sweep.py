"""A sweep whose engines only say what a formula gives: its process, the queue's and the supervisors are the real ones.

`python stand_in_sweep.py sweep FOLDER [LOCK_FD]`, `... dispatcher ROOT [LOCK_FD]`, `... supervisor RUN_DIR ...`,
`... node SWEEP TRIAL ...` (of a cluster), `... engine RUN_DIR`.
"""

import json
import math
import os
import signal
import sys
import time
import tomllib
from pathlib import Path

COMMAND = [sys.executable, str(Path(__file__))]


def loss_at(learning_rate: float, r: int, step: int) -> float:
    """What a trial with these values comes to: the better the nearer to 1e-4, and falling with the steps."""
    return math.log10(learning_rate / 1e-4) ** 2 + 1 / r + 4 / math.sqrt(step)


def act_as_engine(folder: Path) -> None:
    """Evaluate at the rung, and park or finish as the profile says; note the start in `engines` beside the run."""
    profile = tomllib.loads((folder / "profile.toml").read_text())
    park, end = profile["checkpoint"]["park_at_step"], profile["train"]["max_steps"]
    step = end if park == "none" else min(park, end)
    attempt, token = int(os.environ["FTUI_ATTEMPT"]), os.environ["FTUI_TOKEN"]
    work_until_told(folder, {"v": 1, "time": time.time(), "attempt": attempt, "token": token})
    with open(folder.parent / "engines", "a") as file:  # one write
        file.write(json.dumps([folder.name, step]) + "\n")
    loss = loss_at(profile["train"]["learning_rate"], profile["adapter"]["r"], step)
    note_rung(folder, step, loss, is_end=step == end, attempt=attempt, token=token)
    sys.exit(11 if step < end else 0)


def note_rung(folder: Path, step: int, loss: float, *, is_end: bool, attempt: int = 1, token: str = "t") -> None:
    """What an engine writes that comes to a rung, or to the end."""
    evaluation = {"kind": "evaluation_done", "step": step, "epoch": 1.0, "loss": loss, "num_target_tokens": 1,
                  "seconds": 0.1, "best": False, "requested": not is_end}  # fmt: skip
    ending = (
        {"kind": "run_finished", "step": step, "reason": "", "final": "final"}
        if is_end
        else {"kind": "run_stopped", "step": step, "reason": "rung", "exit_code": 11}
    )
    stamp = {"v": 1, "time": time.time(), "attempt": attempt, "token": token}
    write(folder, stamp, evaluation, ending)


def work_until_told(folder: Path, stamp: dict[str, object]) -> None:
    """Where the folder of runs has a file `gate`, work until it is gone; save and leave at SIGTERM, as engines do."""

    def leave(*_: object) -> None:
        ending = {"kind": "run_stopped", "step": 1, "reason": "pre-empted (SIGTERM)", "exit_code": 20}
        write(folder, stamp, ending)
        os._exit(20)

    signal.signal(signal.SIGTERM, leave)
    while (folder.parent / "gate").exists():
        time.sleep(0.02)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def write(folder: Path, stamp: dict[str, object], *lines: dict[str, object]) -> None:
    with open(folder / "journal.jsonl", "a") as file:
        file.write("".join(json.dumps(line | stamp) + "\n" for line in lines))


def main(part: str, arguments: list[str]) -> int:
    if part == "engine":
        act_as_engine(Path(arguments[0]))
    if part == "sweep":
        from ftui.queue import wake
        from ftui.sweep import controller
        from ftui.sweep.executors import executor, slurm_jobs

        wake.COMMAND = [*COMMAND, "dispatcher"]
        controller.TICK_SECONDS = 0.05
        executor.NODE_PROGRAM = [*COMMAND[1:], "node"]
        slurm_jobs.LOOK_SECONDS = 0.2
        return controller.main(arguments)
    from ftui.queue import dispatcher
    from ftui.supervisor import spawn, supervise

    spawn.COMMAND = [*COMMAND, "supervisor"]
    if part == "node":
        from ftui.sweep.executors import on_node

        return on_node.main(arguments)
    if part == "dispatcher":
        dispatcher.TICK_SECONDS = 0.05
        return dispatcher.main(arguments)
    supervise.engine_command = lambda run: [sys.executable, "-S", *COMMAND[1:], "engine", str(run.folder)]
    return supervise.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
