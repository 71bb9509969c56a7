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

from ftui.errors import (  # noqa: E402
    BUG,
    PARKED,
    PREEMPTED_NOT_SAVED,
    STOPPED,
    DiskError,
    DiskFullError,
    FtuiError,
    HostMemoryError,
    LostRunError,
)
from ftui.runs.checkpoint_folders import checkpoints_in  # noqa: E402
from ftui.runs.events import RunFailed, RunStopped  # noqa: E402
from ftui.runs.run_folder import Run  # noqa: E402
from ftui.supervisor.engine_process import KEEPER, LOST_RANK, RankLostError  # noqa: E402
from ftui.system.files import try_lock  # noqa: E402
from ftui.system.redact import finish_output, redact, redact_output  # noqa: E402
from ftui.system.volume import is_disk_full  # noqa: E402

from .runtime.control_flags import Control, Shutdown, Why  # noqa: E402
from .runtime.event_writer import EventWriter  # noqa: E402
from .runtime.request_inbox import RequestInbox, answers_in  # noqa: E402
from .system.libraries import import_libraries, quick_imports  # noqa: E402

PATIENCE_SECONDS = 1.0  # how long SIGTERM waits for the main thread while libraries or a model are loaded
LOOK_SECONDS = 0.1

UNTRAINED: dict[Why, tuple[int, str]] = {
    "preempted": (PREEMPTED_NOT_SAVED, "pre-empted (SIGTERM)"),
    "park": (PARKED, "parked"),
    "stop": (STOPPED, "stopped"),
    "abort": (STOPPED, "aborted"),
    "full": (DiskError.exit_code, "the disk is full"),
}


def main(arguments: list[str]) -> int:
    """Run the engine on the run folder that is the first argument; returns the exit code."""
    os.umask(0o077)
    redact_output()
    faulthandler.enable(file=2)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)  # the supervisor asks before it kills
    run = Run(Path(arguments[0]).absolute())
    if os.environ.get("RANK", "0") != "0":
        return run_rank(run)
    control = Control()
    control.listen()
    try:
        run.check()
        lock = try_lock(run.engine_lock)
        if lock is None:
            print(f"another engine trains {run.name}", file=sys.stderr)
            return LostRunError.exit_code
        attempt, token = int(os.environ.get("FTUI_ATTEMPT", "1")), os.environ.get("FTUI_TOKEN", "")
        events = EventWriter(run, attempt=attempt, token=token)
    except OSError as error:  # no space even for an empty journal
        print(f"{run.folder} cannot be written to: {error}", file=sys.stderr)
        return DiskError.exit_code
    events.lock = lock
    control.open(RequestInbox(run, events, answers_in(run)))
    threading.Thread(target=_watch_for_sigterm, args=(run, events, control), daemon=True).start()
    return run_engine(run, events, control)


def run_rank(run: Run) -> int:
    """A rank above 0: it does what rank 0 orders and writes nothing but its output. Only rank 0 listens to signals."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if keeper := os.environ.get(KEEPER):
        threading.Thread(target=_end_with, args=(int(keeper),), daemon=True).start()
    return run_engine(run, EventWriter(run, attempt=0, token="", is_silent=True), Control())


def _end_with(keeper: int) -> None:
    """Nobody else would end the ranks of a node whose keeper was killed, and the next one needs its GPUs."""
    while os.getppid() == keeper:
        time.sleep(1.0)
    os._exit(LOST_RANK)


def _watch_for_sigterm(run: Run, events: EventWriter, control: Control) -> None:
    """Obey SIGTERM while the main thread is deep in an import or in the loading of a model: nothing can be lost yet."""
    while not control.is_training:
        time.sleep(LOOK_SECONDS)
        if control.terminated:
            time.sleep(PATIENCE_SECONDS)
            if not control.is_training and control.end_lock.acquire(blocking=False):
                os._exit(end_untrained(run, events, Shutdown("preempted")))
            return


def run_engine(run: Run, events: EventWriter, control: Control) -> int:
    """Train, and turn whatever ends it into a record and an exit code. The one broad catch of the engine."""
    try:
        from ftui.launch.open_run import check_moved_files, check_node_files
        from ftui.profile.layers import resolve

        resolved, is_leader = resolve(run.profile), os.environ.get("RANK", "0") == "0"
        if is_leader:  # they may have been moved since a supervisor started the attempt before
            check_moved_files(resolved, "ftui", "resume", run.name)
        else:
            check_node_files(resolved)
        profile = resolved.profile
        events.set_phase("starting", "loading the libraries")
        with quick_imports():
            if is_leader:  # the others end with it
                from .early_checks import check_inputs

                check_inputs(profile)
            import_libraries()
            from .recipe import train  # torch, transformers, peft: 2 to 10 s

        return train(run, profile, events, control)
    except Shutdown as shutdown:
        control.end_lock.acquire()
        control.answer(shutdown.request, "nothing new to save")
        control.close("the run has ended")
        return end_untrained(run, events, shutdown)
    except RankLostError as error:  # that rank's end is this attempt's, and the supervisor knows it
        control.end_lock.acquire()
        print(f"rank {os.environ['RANK']}: another rank is gone ({error})", flush=True)
        control.close("another process of the run is gone")
        return LOST_RANK
    except Exception as error:
        control.end_lock.acquire()
        traceback.print_exc()
        return _fail(events, control, error)


def end_untrained(run: Run, events: EventWriter, shutdown: Shutdown) -> int:
    """Record the end of an attempt that has not begun to train; returns the exit code."""
    code, reason = UNTRAINED[shutdown.why]
    reason = shutdown.reason or reason
    newest = next(iter(checkpoints_in(run.checkpoints)), None)
    if newest is None:
        record = RunStopped(step=0, reason=f"{reason} before training began", exit_code=code)
    else:
        reason, path = f"{reason} before training resumed", f"checkpoints/{newest.path.name}"
        record = RunStopped(step=newest.step, reason=reason, exit_code=code, checkpoint=path)
    events.is_shutting_down = True
    events.write(record, durable=True)
    return code


def _fail(events: EventWriter, control: Control, error: Exception) -> int:
    expected = as_ftui_error(error)
    text = f"{type(error if expected is None else expected).__name__}: {error}"
    record = RunFailed(
        message=redact(text if expected is None else expected.message),
        hint="This is a bug in ftui: please report it with engine.log." if expected is None else expected.hint,
        exit_code=BUG if expected is None else expected.exit_code,
        error=redact(text),
        again=type(error).__name__ == "UpdateMemoryError",
    )
    events.is_shutting_down = True
    if rank := int(os.environ.get("RANK", "0")):  # the supervisor quotes it (ftui/runs/endings.py)
        print(f"rank {rank} failed: {record.message} {record.hint}", flush=True)
    control.close("the run has failed")
    events.write(record, durable=True)
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
