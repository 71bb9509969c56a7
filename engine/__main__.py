"""`python -P -m ftui.engine RUN_DIR`: the engine's process. It prints to its log only, ends with the table's codes."""

import errno
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from .system.environment import settle_environment

settle_environment()

from ftui.errors import BUG, DiskError, DiskFullError, FtuiError, HostMemoryError, LostRunError  # noqa: E402
from ftui.runs.events import RunFailed  # noqa: E402
from ftui.runs.run_folder import Run  # noqa: E402
from ftui.supervisor.engine_process import LOST_RANK, RankLostError  # noqa: E402
from ftui.system.files import try_lock  # noqa: E402
from ftui.system.redact import finish_output, redact_output, redacted  # noqa: E402
from ftui.system.volume import is_disk_full  # noqa: E402

from .runtime.control_flags import Control, Leave  # noqa: E402
from .runtime.early_exit import leave_untrained  # noqa: E402
from .runtime.event_writer import Logbook  # noqa: E402
from .runtime.request_inbox import LetterDesk, answers_in  # noqa: E402

PATIENCE_SECONDS = 1.0  # how long SIGTERM waits for the main thread while libraries or a model are loaded
LOOK_SECONDS = 0.1


def main(arguments: list[str]) -> int:
    os.umask(0o077)
    redact_output()
    faulthandler.enable(file=2)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)  # the supervisor asks before it kills
    run = Run(Path(arguments[0]).absolute())
    if os.environ.get("RANK", "0") != "0":
        return accompany(run)
    control = Control()
    control.listen()
    try:
        lock = try_lock(run.engine_lock)
        if lock is None:
            print(f"another engine trains {run.name}", file=sys.stderr)
            return LostRunError.exit_code
        logbook = Logbook(run, attempt=int(os.environ.get("FTUI_ATTEMPT", "1")), token=os.environ.get("FTUI_TOKEN", ""))
    except OSError as error:  # no room even for an empty journal
        print(f"{run.folder} cannot be written to: {error}", file=sys.stderr)
        return DiskError.exit_code
    logbook.lock = lock
    control.open(LetterDesk(run, logbook, answers_in(run)))
    threading.Thread(target=_stand_by, args=(logbook, control), daemon=True).start()
    return conduct(run, logbook, control)


def accompany(run: Run) -> int:
    """A rank above 0: it does as rank 0 orders and writes nothing but its output. Signals are rank 0's business."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return conduct(run, Logbook(run, attempt=0, token="", is_silent=True), Control())


def _stand_by(logbook: Logbook, control: Control) -> None:
    """Obey SIGTERM while the main thread is deep in an import or in the loading of a model: nothing can be lost yet."""
    while not control.is_training:
        time.sleep(LOOK_SECONDS)
        if control.terminated:
            time.sleep(PATIENCE_SECONDS)
            if not control.is_training and control.ending.acquire(blocking=False):
                os._exit(leave_untrained(logbook, Leave("preempted")))
            return


def conduct(run: Run, logbook: Logbook, control: Control) -> int:
    """Train, and turn whatever ends it into a record and an exit code. The one broad catch of the engine."""
    try:
        from ftui.profile.layers import resolve

        profile = resolve(run.profile).profile
        logbook.phase("starting", "loading the libraries")
        from .recipe import train  # torch, transformers, peft: 5 to 10 s

        return train(run, profile, logbook, control)
    except Leave as leaving:
        control.ending.acquire()
        control.answer(leaving.request, "nothing to save yet")
        control.close("the run has ended")
        return leave_untrained(logbook, leaving)
    except RankLostError as error:  # that rank's end is this attempt's, and the supervisor knows it
        control.ending.acquire()
        print(f"rank {os.environ['RANK']}: another rank is gone ({error})", flush=True)
        control.close("another process of the run is gone")
        return LOST_RANK
    except Exception as error:
        control.ending.acquire()
        traceback.print_exc()
        return _failed(logbook, control, error)


def _failed(logbook: Logbook, control: Control, error: Exception) -> int:
    known = as_ftui_error(error)
    text = f"{type(error).__name__}: {error}"
    record = RunFailed(
        message=redacted(text if known is None else known.message),
        hint="This is a bug in ftui: please report it with engine.log." if known is None else known.hint,
        exit_code=BUG if known is None else known.exit_code,
        error=redacted(text),
        again=type(error).__name__ == "UpdateMemoryError",
    )
    logbook.is_leaving = True
    if rank := int(os.environ.get("RANK", "0")):  # the supervisor quotes it (ftui/runs/reduce.py)
        print(f"rank {rank} failed: {record.message} {record.hint}", flush=True)
    control.close("the run has failed")
    logbook.event(record, durable=True)
    return record.exit_code


def as_ftui_error(error: Exception) -> FtuiError | None:
    """The expected failure an exception stands for, `None` for a bug."""
    if isinstance(error, FtuiError):
        return error
    if is_disk_full(error):
        return DiskFullError(f"The disk is full: {error}.", hint="Free some space and start the run again.")
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return DiskError(f"The disk failed: {error}.", hint="Check the volume, then start the run again.")
    if isinstance(error, MemoryError):
        return HostMemoryError("The machine is out of memory.", hint="Use a machine with more RAM.")
    from .system.memory import is_out_of_memory, out_of_memory

    return out_of_memory(error) if is_out_of_memory(error) else None


if __name__ == "__main__":
    code = main(sys.argv[1:])
    finish_output()
    os._exit(code)  # everything is on the disk: taking torch apart would keep the GPU for 2 s more
