"""Forks a child for every I/O operation of one checkpoint save and kills it there: `save_trials.py RUN_DIR`.

Started with the shim of faultio.c in LD_PRELOAD. Imports torch once; prints one JSON object a trial: the operation, the
newest valid checkpoint afterwards, and any folder under a final name that is not valid.
"""

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from ftui import checkpoints
from ftui.engine.checkpoint import Keeper
from ftui.engine.control import Control
from ftui.engine.data.cache import cache_folder
from ftui.engine.hardware import find_hardware
from ftui.engine.logbook import Logbook
from ftui.engine.preparation import prepare
from ftui.engine.recipe import _assemble, _model
from ftui.engine.rng import RngState
from ftui.engine.training import Training
from ftui.profile import resolve
from ftui.run import Run


def assemble(run: Run) -> Training:
    profile = resolve(run.profile).profile
    hardware = find_hardware(profile)
    cache = cache_folder(run.folder / "cache")
    prepared = prepare(profile, cache, lambda detail: None)
    torch.manual_seed(1)
    model: Any = _model(profile, prepared, hardware)
    logbook = Logbook(run, attempt=1, token="trial")
    training = _assemble(run, profile, hardware, prepared, model, logbook, Control(), cache)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight) if weight.requires_grad else None
    training.optimizer.step()
    return training


def save(training: Training, step: int) -> None:
    training.state.step = step
    keeper = Keeper(training)
    keeper.save(RngState.capture(training.hardware.device), "periodic")
    keeper.settle()


def child(training: Training, operation: int, half: bool) -> int:
    """Fork, save step 2 under the armed shim, return how many operations there were (0: it was killed)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        shim = ctypes.CDLL(None)
        shim.faultio_count.restype = ctypes.c_long
        shim.faultio_arm(str(training.run.checkpoints).encode(), ctypes.c_long(operation), int(half))
        save(training, 4)
        os.write(writer, str(shim.faultio_count()).encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 32)
    os.close(reader)
    os.waitpid(pid, 0)
    return int(answer or 0)


def main() -> None:
    run = Run(Path(sys.argv[1]))
    training = assemble(run)
    for step in (1, 2, 3):
        save(training, step)
    before = run.folder / "before"
    shutil.copytree(run.checkpoints, before)
    total = child(training, 0, False)
    run_id = run.read_facts().run_id
    for half in (False, True):
        for operation in range(1, total + 1):
            shutil.rmtree(run.checkpoints)
            shutil.copytree(before, run.checkpoints)
            survived = child(training, operation, half)
            invalid = [c.path.name for c in checkpoints.listed(run.checkpoints) if checkpoints.fault(c.path)]
            found, _ = checkpoints.newest_valid(run.checkpoints, run_id)
            checkpoints.sweep(run.checkpoints)
            left = sorted(p.name for p in run.checkpoints.iterdir() if p.name.startswith("."))
            line = {"operation": operation, "half": half, "killed": not survived, "invalid": invalid, "left": left}
            print(json.dumps(line | {"newest": found.step if found else None, "total": total}), flush=True)


if __name__ == "__main__":
    main()
