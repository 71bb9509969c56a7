"""A sweep is stopped and let go on: its trials are parked where they are, and none is lost."""

from ftui.errors import UsageError
from ftui.queue import change
from ftui.queue.queue_files import QueueFiles
from ftui.runs.requests import Park, write_request
from ftui.runs.run_folder import Run
from ftui.runs.send_request import address_request
from ftui.runs.status import is_running, read_status
from ftui.sweep.sweep_files import SweepContinued, SweepEnded, SweepFiles, SweepPaused

STOPPED = "stopped by hand"


def pause_sweep(files: SweepFiles) -> bool:
    """Send no more trials on their way; those that are go on to their rung. Whether that is new."""
    with files.changing() as pen:
        if pen.state.is_paused:
            return False
        pen.write(SweepPaused())
    return True


def stop_sweep(files: SweepFiles) -> list[str]:
    """End a sweep now: trials that wait leave the queue, those that are running are parked. Their names.

    Raises:
        UsageError: it has ended.
    """
    with files.changing() as pen:
        if pen.state.ended:
            raise UsageError(f"{files.name} has ended: {pen.state.ended}.", hint=f"ftui sweep results {files.name}")
        pen.write(SweepEnded(reason=STOPPED))
        on_their_way = pen.state.on_their_way
    parked = []
    for run in (files.run_of(trial.number) for trial in on_their_way):
        if run.facts.exists() and (_take_out(files, run) or _park(run)):
            parked.append(run.name)
    return parked


def _take_out(files: SweepFiles, run: Run) -> bool:
    """Take a run that waits out of the queue; one that never trained goes with its folder, and is made anew later."""
    queue = QueueFiles(files.root)
    run_id = run.read_facts().run_id
    entry = next((entry for entry in queue.read().waiting if entry.run_id == run_id), None)
    if entry is None:
        return False
    try:
        change.remove(queue, entry)
    except UsageError:  # the queue has started it in this moment
        return False
    return True


def _park(run: Run) -> bool:
    status = read_status(run)
    if not (is_running(status) or status.elsewhere) or status.state.attempt == 0:
        return False
    try:
        write_request(run, address_request(run, status, Park, {}))
    except UsageError:  # it has ended in this moment
        return False
    return True


def continue_sweep(files: SweepFiles) -> bool:
    """Let a sweep go on that was paused or stopped, with what was parked on its way. Whether that is new."""
    with files.changing() as pen:
        if not pen.state.is_paused and not pen.state.ended:
            return False
        runs = {trial.number: files.run_of(trial.number) for trial in pen.state.on_their_way}
        attempts = {n: read_status(run).state.attempt for n, run in runs.items() if run.facts.exists()}
        pen.write(SweepContinued(attempts=attempts))
    return True
