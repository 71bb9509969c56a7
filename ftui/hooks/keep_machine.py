"""What people say to `hooks.then_stop`: that the machine stays, or that the chain goes on where it was cut off."""

from ftui.errors import LostRunError, UsageError
from ftui.hooks.hook_settings import read_hook_settings
from ftui.hooks.then_stop import KEEP, ThenStop
from ftui.runs.journal import Writer
from ftui.runs.records.hook_records import JOURNAL
from ftui.runs.run_folder import Run
from ftui.runs.status import is_final, is_running, read_status
from ftui.system.files import make_private_folder, replace_file, try_lock


def keep_machine(run: Run) -> str:
    """Cancel the countdown of a run that has ended; returns that in words.

    Raises:
        UsageError: nothing counts down.
    """
    stop = read_status(run).state.machine_stop
    if stop is None or stop.phase not in ("planned", "waits"):
        raise UsageError(f"{run.name} is not about to stop this machine.")
    replace_file(run.hooks / KEEP, b"")
    return "The machine stays."


def go_on_to_stop(run: Run) -> str:
    """The chain of a run that has ended, in this process: where its own was killed, or waited for a push.

    Raises:
        UsageError: it has not ended, or its own process is at work.
    """
    status = read_status(run)
    if is_running(status) or not is_final(status):
        raise UsageError(f"{run.name} has not ended.")
    make_private_folder(run.hooks, inside=run.folder)
    lock = try_lock(run.hooks / "lock")
    if lock is None:
        raise LostRunError(f"Another process runs the hooks of {run.name}.", hint=f"ftui log {run.name} shows them.")
    writer = Writer(run.hooks / JOURNAL)
    try:
        return ThenStop(run, read_hook_settings(run), writer, status.state).go()
    finally:
        writer.close()
        lock.close()
