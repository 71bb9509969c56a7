"""`python -P -m ftui.engine RUN_DIR`: the engine's process. It prints to its log only, ends with the table's codes."""

import errno
import faulthandler
import os
import sys
import traceback
from pathlib import Path

from ftui.engine.environment import settle_environment

settle_environment()

from ftui.engine.control import Control, Preempted  # noqa: E402
from ftui.engine.logbook import Logbook  # noqa: E402
from ftui.errors import (  # noqa: E402
    BUG,
    PREEMPTED_NOT_SAVED,
    DiskError,
    FtuiError,
    GpuMemoryError,
    HostMemoryError,
    LostRunError,
)
from ftui.events import RunFailed, RunStopped  # noqa: E402
from ftui.files import try_lock  # noqa: E402
from ftui.run import Run  # noqa: E402


def main(arguments: list[str]) -> int:
    faulthandler.enable()
    os.umask(0o077)
    run = Run(Path(arguments[0]).absolute())
    lock = try_lock(run.engine_lock)
    if lock is None:
        print(f"another engine trains {run.name}", file=sys.stderr)
        return LostRunError.exit_code
    control = Control()
    control.listen()
    logbook = Logbook(run, attempt=int(os.environ.get("FTUI_ATTEMPT", "1")), token=os.environ.get("FTUI_TOKEN", ""))
    return conduct(run, logbook, control)


def conduct(run: Run, logbook: Logbook, control: Control) -> int:
    """Train, and turn whatever ends it into a record and an exit code. The one broad catch of the engine."""
    try:
        from ftui.profile import resolve

        profile = resolve(run.profile).profile
        logbook.phase("starting", "loading the libraries")
        from ftui.engine.recipe import train  # torch, transformers, peft: 5 to 10 s

        return train(run, profile, logbook, control)
    except Preempted:
        reason = "pre-empted (SIGTERM) before training began"
        logbook.event(RunStopped(step=0, reason=reason, exit_code=PREEMPTED_NOT_SAVED), durable=True)
        return PREEMPTED_NOT_SAVED
    except Exception as error:
        traceback.print_exc()
        known = as_ftui_error(error)
        code = BUG if known is None else known.exit_code
        message = f"{type(error).__name__}: {error}" if known is None else known.message
        hint = "This is a bug in ftui: please report it with engine.log." if known is None else known.hint
        record = RunFailed(message=message, hint=hint, exit_code=code, error=type(error).__name__)
        logbook.event(record, durable=True)
        return code


def as_ftui_error(error: Exception) -> FtuiError | None:
    """The expected failure an exception stands for, `None` for a bug."""
    if isinstance(error, FtuiError):
        return error
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return GpuMemoryError(str(error).split("\n")[0], hint="Halve train.per_device_train_batch_size.")
    if isinstance(error, MemoryError):
        return HostMemoryError("The machine is out of memory.", hint="Use a machine with more RAM.")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(f"The disk is full: {error}.", hint="Free some space and start the run again.")
    return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
