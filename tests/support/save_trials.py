"""Forks a child for the I/O operations of one save and its rotation, to kill it there or let one of them fail.

`save_trials.py RUN_DIR kill|fail|lie STRIDE [beside]`, with the shim of faultio.c in LD_PRELOAD. Imports torch once;
prints one JSON object a trial (see `killed` and `failed`). Tried is every STRIDE-th of the operations at which a strike
does what no other one does.
"""

import ctypes
import errno
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ftui.engine.__main__ import as_ftui_error
from ftui.engine.build import assemble, build_model
from ftui.engine.checkpoints import checkpoint
from ftui.engine.checkpoints.checkpoint import CheckpointManager, restore
from ftui.engine.checkpoints.reproducibility import Provenance
from ftui.engine.checkpoints.resume import sweep
from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.models.model_parts import ModelParts
from ftui.engine.models.weights import write_weights
from ftui.engine.runtime import disk_wait
from ftui.engine.runtime.control_flags import Control, Shutdown
from ftui.engine.runtime.disk_wait import DiskWait
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.system.device import find_hardware
from ftui.engine.system.rng import RngState, seed_everything
from ftui.engine.system.train_state import TrainState
from ftui.engine.training.prepare import prepare
from ftui.errors import DiskError
from ftui.profile.layers import resolve
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.system.checked_write import Pieces
from ftui.system.file_tree import plain_files
from ftui.system.user_folders import cache_folder

KILL, HALF_KILL, FAIL, HALF_FAIL, LIE_SHORT, LIE_ZEROS, LIE_FLIP = range(7)  # of faultio.c
PATIENCE_SECONDS = 0.1  # three tries within it: a loaded machine takes 20 ms for one
BESIDE = sys.argv[4:] == ["beside"]  # by the thread, as while steps go on
STEP = 4  # the step that is saved under the shim; 1 to 3 are there
# Name: (how, errno, for good).
FAULTS = {
    "ENOSPC": (FAIL, errno.ENOSPC, False),
    "ENOSPC for good": (FAIL, errno.ENOSPC, True),
    "EDQUOT": (FAIL, errno.EDQUOT, False),
    "EDQUOT for good": (FAIL, errno.EDQUOT, True),
    "EIO": (FAIL, errno.EIO, False),
    "EIO for good": (FAIL, errno.EIO, True),
    "EINTR": (FAIL, errno.EINTR, False),
    "EBUSY": (FAIL, errno.EBUSY, False),
    "half, ENOSPC": (HALF_FAIL, errno.ENOSPC, False),
    "half, ENOSPC for good": (HALF_FAIL, errno.ENOSPC, True),
    "half, EIO": (HALF_FAIL, errno.EIO, False),
}
LIES = {
    f"{name}{' for good' * for_good}": (how, 0, for_good)
    for name, how in (("short", LIE_SHORT), ("zeros", LIE_ZEROS), ("flip", LIE_FLIP))
    for for_good in (False, True)
}


def remember_weights() -> None:
    """No step is taken here, so the libraries make the files of the weights and the tokenizer once; what a save does
    with them, and all that reaches the disk, is as ever."""
    pieces: dict[str, Pieces] = {}
    small: dict[Path, bytes] = {}

    def write(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, Pieces]:
        if not pieces:
            pieces.update(write_weights(model, tokenizer, folder))
            small.update({path.relative_to(folder): path.read_bytes() for path in plain_files(folder)})
        for name, data in small.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        return dict(pieces)

    setattr(checkpoint, "write_weights", write)  # noqa: B010


Strikable = dict[tuple[int, int], list[int]]
"""The numbers of the operations at which a strike, (how, errno), does what no other one does."""


class Shim:
    """faultio.c in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faultio_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        self._library.faultio_can_strike.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int]
        self._library.faultio_count.restype = self._library.faultio_struck.restype = ctypes.c_long

    def arm(self, folder: Path, operation: int, how: int = KILL, error: int = 0, *, for_good: bool = False) -> None:
        self._library.faultio_arm(os.fsencode(folder), operation, how, error, int(for_good))

    def strikable(self, total: int, how: int, error: int) -> list[int]:
        """Of `total` operations counted in this process, those at which such a strike is not the same as another."""
        return [n for n in range(1, total + 1) if self._library.faultio_can_strike(n, how, error)]

    def disarm(self) -> tuple[int, int]:
        """Operations since it was armed, and those of them that failed."""
        seen = self._library.faultio_count(), self._library.faultio_struck()
        self._library.faultio_arm(b"", 0, KILL, 0, 0)
        return seen


@dataclass
class Trial:
    """A run with a trained model and nothing saved yet."""

    run: Run
    parts: ModelParts
    tokenizer: PreTrainedTokenizerBase
    state: TrainState
    events: EventWriter
    disk_wait: DiskWait
    limit: int

    def checkpoints(self) -> CheckpointManager:
        return CheckpointManager(
            self.run, self.parts, self.tokenizer, self.state, ProcessGroup(), self.events, self.disk_wait,
            Provenance({}, {}), self.limit,
        )  # fmt: skip


def assemble_run(run: Run) -> Trial:
    profile = resolve(run.profile).profile
    hardware = find_hardware(profile)
    data = prepare(profile, cache_folder(run.folder / "cache"), lambda detail: None)
    torch.manual_seed(1)
    parts = assemble(profile, data, build_model(profile, data, hardware), hardware, ProcessGroup())
    events = EventWriter(run, attempt=1, token="trial")
    wait = DiskWait(run, events, Control(), profile.checkpoint.max_hold_minutes)
    for weight in parts.model.parameters():
        weight.grad = torch.ones_like(weight) if weight.requires_grad else None
    parts.optimizer.step()
    return Trial(run, parts, data.tokenizer, TrainState(), events, wait, profile.checkpoint.save_total_limit)


def save(trial: Trial, step: int, checkpoints: CheckpointManager | None = None) -> None:
    trial.state.step = step
    checkpoints = checkpoints or trial.checkpoints()
    checkpoints.boundary = RngState.capture(trial.parts.device)
    if BESIDE:
        try:
            checkpoints.start_save("periodic")
            checkpoints.finish()
        finally:  # whatever fails in this thread, an attempt ends after the other one
            checkpoints._thread.submit(int).result()
    else:
        checkpoints.save("periodic")


def child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work in a fork; its answer, empty where it was killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"a trial is broken, status {status}"
    found: dict[str, Any] = json.loads(answer or b"{}")
    return found


def state_of(run: Run) -> dict[str, Any]:
    """Folders under a final name that are not valid, the steps of those that are, and what the next sweep leaves."""
    found = [(c, checkpoint_folders.fault(c.path)) for c in checkpoint_folders.checkpoints_in(run.checkpoints)]
    sweep(run)
    left = sorted(path.name for path in run.checkpoints.iterdir() if path.name.startswith("."))
    return {
        "invalid": [f"{c.path.name}: {problem}" for c, problem in found if problem],
        "valid": [c.step for c, problem in found if not problem],
        "left": left,
    }


def one_save(trial: Trial, shim: Shim, operation: int, how: int) -> dict[str, Any]:
    shim.arm(trial.run.checkpoints, operation, how)
    save(trial, STEP)
    return {"total": shim.disarm()[0]}


def killed(trial: Trial, shim: Shim, strikable: Strikable, stride: int) -> Iterator[dict[str, Any]]:
    """A kill at the operation, the state of the folder afterwards."""
    for how in (KILL, HALF_KILL):
        for operation in strikable[how, 0][::stride]:
            survived = child(lambda how=how, n=operation: one_save(trial, shim, n, how))  # type: ignore[misc]
            line = {"half": how == HALF_KILL, "operation": operation, "killed": not survived}
            yield line | state_of(trial.run)


def lied(trial: Trial, shim: Shim, strikable: Strikable, stride: int) -> Iterator[dict[str, Any]]:
    """A write that says that all is well and has written something else, otherwise as `failed`."""
    return failed(trial, shim, strikable, stride, LIES)


def failed(
    trial: Trial, shim: Shim, strikable: Strikable, stride: int, faults: dict[str, tuple[int, int, bool]] = FAULTS
) -> Iterator[dict[str, Any]]:
    """An error at the operation: how the save ended, what it waited for, the folder; then all that after the repair."""
    for number, (name, (how, error, for_good)) in enumerate(faults.items()):
        operations = strikable[how, error]
        for operation in operations[number % min(stride, len(operations)) :: stride]:  # each fault at others
            arm = {"operation": operation, "how": how, "error": error, "for_good": for_good}
            yield {"fault": name, "operation": operation} | child(
                lambda arm=arm: failing_save(trial, shim, **arm)  # type: ignore[misc]
            )


def failing_save(trial: Trial, shim: Shim, **arm: Any) -> dict[str, Any]:
    """Save under the armed shim, look, then save again in the same process with the shim off, and restore that."""
    checkpoints, waits = trial.checkpoints(), spied(trial)
    shim.arm(trial.run.checkpoints if arm["how"] >= LIE_SHORT else trial.run.folder, **arm)
    end, words = ending(lambda: save(trial, STEP, checkpoints))
    count, struck = shim.disarm()
    found: dict[str, Any] = {"end": end, "words": words, "waits": waits, "count": count, "struck": struck}
    found |= state_of(trial.run) | {"beside": temporary(trial.run.folder)}
    found["older_changed"] = [
        c.step for c in checkpoint_folders.checkpoints_in(trial.run.checkpoints) if changed(trial.run, c)
    ]
    again = STEP if STEP not in found["valid"] else STEP + 1
    found["repaired"] = ending(lambda: save(trial, again, checkpoints))
    found["restored"] = restored(trial, again)
    tail = Tail(trial.run.journal)
    found["last_record"] = type(tail.read()[-1]).__name__
    found["damaged_records"] = tail.num_damaged
    return found


def spied(trial: Trial) -> list[str]:
    """Note what the run waits for, each time."""
    waits: list[str] = []
    wait = trial.disk_wait.wait

    def noting(error: DiskError) -> None:
        waits.append(error.message)
        wait(error)

    trial.disk_wait.wait = noting  # type: ignore[method-assign]
    return waits


def ending(act: Callable[[], None]) -> tuple[str, str]:
    """`saved`, or why the engine would end, and the words for it."""
    try:
        act()
    except Shutdown as shutdown:
        return shutdown.why, ""
    except Exception as error:
        known = as_ftui_error(error)
        if known is None:
            return f"bug: {type(error).__name__}", str(error)
        return type(known).__name__, known.message
    return "saved", ""


def temporary(folder: Path) -> list[str]:
    """What the sweep has left beside the checkpoints of what was being written when it failed."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != ".reserve")


def changed(run: Run, saved: Checkpoint) -> bool:
    """Whether a checkpoint from before is not what it was, byte for byte."""
    before = run.folder / "before" / saved.path.name
    names = {path.relative_to(before) for path in before.rglob("*") if path.is_file()}
    return saved.step < STEP and any((before / n).read_bytes() != (saved.path / n).read_bytes() for n in names)


def snapshot(trial: Trial) -> dict[str, torch.Tensor]:
    """All tensors of weights, optimizer and generators."""
    optimizer = trial.parts.optimizer.state_dict()["state"]
    tensors = dict(trial.parts.model.named_parameters()) | RngState.capture(trial.parts.device).tensors()
    tensors |= {f"{index} {name}": value for index, values in optimizer.items() for name, value in values.items()}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def restored(trial: Trial, step: int) -> bool:
    """Whether the checkpoint of a step is valid and puts everything back as it is now, after all of it was spoilt."""
    path, before = trial.run.checkpoints / f"checkpoint-{step}", snapshot(trial)
    if checkpoint_folders.fault(path):
        return False
    seed_everything(99)
    with torch.no_grad():
        for weight in trial.parts.model.parameters():
            if weight.requires_grad:
                weight.fill_(7.0)
    for values in trial.parts.optimizer.state.values():
        for value in values.values():
            value.fill_(3.0)
    trial.state.step = 0
    restore(trial.parts, trial.state, Checkpoint(path, step))
    after = snapshot(trial)
    same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    return same and trial.state.step == step


def main() -> None:
    run, mode, stride = Run(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    disk_wait.RETRY_SECONDS, disk_wait.LOOK_SECONDS = PATIENCE_SECONDS / 3, PATIENCE_SECONDS / 10
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints is no answer
    remember_weights()
    trial, shim = assemble_run(run), Shim()
    trial.disk_wait._patience = PATIENCE_SECONDS
    for step in (1, 2, 3):
        save(trial, step)
    before, folder = run.folder / "before", run.checkpoints
    shutil.copytree(folder, before)
    fresh_copy(before, folder)
    armed = run.folder if mode == "fail" else folder
    strikable = {(how, error): at for how, error, at in child(lambda: counted(trial, shim, armed))["strikable"]}
    fresh_copy(before, folder)
    for line in {"kill": killed, "fail": failed, "lie": lied}[mode](trial, shim, strikable, stride):
        print(json.dumps(line), file=answers, flush=True)
        fresh_copy(before, folder)


def counted(trial: Trial, shim: Shim, folder: Path) -> dict[str, Any]:
    """The operations of a save and its rotation at which each strike does something."""
    shim.arm(folder, 0)
    save(trial, STEP)
    total, _ = shim.disarm()
    strikes = {(KILL, 0), (HALF_KILL, 0), *((how, error) for how, error, _ in (*FAULTS.values(), *LIES.values()))}
    return {"strikable": [(*strike, shim.strikable(total, *strike)) for strike in sorted(strikes)]}


def fresh_copy(before: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(before, folder)


if __name__ == "__main__":
    main()
