"""A dispatcher of two cards that are not there and supervisors of engines that only wait: the rest is the real thing.

`python stand_in_queue.py dispatcher ROOT [LOCK_FD]`, `... supervisor RUN_DIR ...`, `... engine RUN_DIR`, and
`... command WORD ...`: a command of ftui that wakes such a dispatcher.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

CARDS = ("GPU-a", "GPU-b")
ENGINE_SECONDS = 0.4
COMMAND = [sys.executable, str(Path(__file__))]


class NVMLError(Exception):
    pass


def driver() -> SimpleNamespace:
    """NVML over the two cards, which nobody uses."""
    memory = SimpleNamespace(used=1 << 28, total=24 << 30)
    answers: dict[str, Any] = {
        "Init": lambda: None, "Shutdown": lambda: None, "DeviceGetCount": lambda: len(CARDS),
        "DeviceGetHandleByIndex": lambda index: index, "DeviceGetName": lambda _: "NVIDIA GeForce RTX 4090",
        "DeviceGetMemoryInfo": lambda _: memory, "DeviceGetCudaComputeCapability": lambda _: (8, 9),
        "DeviceGetUUID": lambda handle: CARDS[handle], "DeviceGetComputeRunningProcesses": lambda _: [],
    }  # fmt: skip
    return SimpleNamespace(NVMLError=NVMLError, **{f"nvml{name}": answer for name, answer in answers.items()})


def act_as_engine(folder: Path) -> None:
    """Note when it ran where, in `engines` beside the run, and end as the run's name says."""
    begin = time.monotonic()
    time.sleep(ENGINE_SECONDS)
    line = [folder.name, os.environ["CUDA_VISIBLE_DEVICES"], begin, time.monotonic()]
    with open(folder.parent / "engines", "a") as file:  # one write
        file.write(json.dumps(line) + "\n")
    if folder.name.startswith("bad"):
        sys.exit(31)
    stamp = {"v": 1, "time": time.time(), "attempt": int(os.environ["FTUI_ATTEMPT"]), "token": os.environ["FTUI_TOKEN"]}
    with open(folder / "journal.jsonl", "a") as file:
        file.write(json.dumps({"kind": "run_finished", "step": 1, "reason": "", "final": "final"} | stamp) + "\n")


def launch_and_die(run: Any, lock: Any, cards: Any) -> None:
    """The moment that matters: a run has been started, and the journal does not say so."""
    from ftui.supervisor.spawn import launch

    launch(run, lock, cards)
    os.kill(os.getpid(), signal.SIGKILL)


def main(part: str, arguments: list[str]) -> int:
    if part == "engine":
        act_as_engine(Path(arguments[0]))
        return 0
    sys.modules["pynvml"] = driver()  # type: ignore[assignment]
    if part == "dispatcher":
        from ftui.queue import dispatcher
        from ftui.supervisor import spawn

        spawn.COMMAND = [*COMMAND, "supervisor"]
        if "DIES_AFTER_A_START" in os.environ:
            mock.patch.object(dispatcher, "launch", launch_and_die).start()
        dispatcher.TICK_SECONDS = 0.05
        return dispatcher.main(arguments)
    if part == "command":
        from ftui.cli import main as cli
        from ftui.queue import wake

        wake.COMMAND = [*COMMAND, "dispatcher"]
        return cli.main(arguments)
    from ftui.supervisor import supervise

    supervise.engine_command = lambda run: [sys.executable, "-S", *COMMAND[1:], "engine", str(run.folder)]
    return supervise.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
