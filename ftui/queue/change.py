"""Move and remove runs that wait, pause a queue and let it go on."""

from ftui.errors import UsageError
from ftui.launch import manage_runs
from ftui.queue.queue_files import Pen, QueueFiles, all_queues, find_entry_run
from ftui.queue.waiting_runs import Continued, Entry, Moved, Paused, Removed
from ftui.queue.wake import wake
from ftui.runs.status import read_status
from ftui.text import did_you_mean, shown


def find_waiting(name: str) -> tuple[QueueFiles, Entry]:
    """The waiting run of that name, and its queue.

    Raises:
        UsageError: none waits under it.
    """
    names = []
    for files in all_queues():
        try:
            queue = files.read()
        except OSError:  # `ftui queue list` says so; the others can be changed
            continue
        for entry in queue.waiting:
            run = find_entry_run(files.root, entry.added.name, entry.run_id)
            names.append(entry.added.name if run is None else run.name)
            if names[-1] == name:
                return files, entry
        running = [entry.added.name for entry in queue.running]
        if name in running:
            raise UsageError(f"{name} does not wait: the queue has started it.", hint=f"ftui stop {name}")
    hint = f"{did_you_mean(name, names)}`ftui queue list` shows what waits."
    raise UsageError(f"No run named {name!r} waits in the queue.", hint=hint)


def move(files: QueueFiles, entry: Entry, place: int) -> int:
    """Put a waiting run at that place, 0 for the next one to be started; says where it is now.

    Raises:
        UsageError: it has been started meanwhile.
    """
    with files.changing() as pen:
        _check_waiting(pen, entry)
        pen.write(Moved(run_id=entry.run_id, place=place))
        return pen.queue.place_of(entry.run_id) or 0


def remove(files: QueueFiles, entry: Entry) -> bool:
    """Take a run out; whether its folder, which was made for the queue and has nothing else in it, went with it.

    Raises:
        UsageError: it has been started meanwhile.
        LostRunError: somebody starts it by hand in this moment.
    """
    with files.changing() as pen:
        _check_waiting(pen, entry)
        pen.write(Removed(run_id=entry.run_id))
    run = find_entry_run(files.root, entry.added.name, entry.run_id)
    is_unstarted = run is not None and run.read_facts().queued and not read_status(run).state.attempt
    return run is not None and is_unstarted and manage_runs.remove(run)


def _check_waiting(pen: Pen, entry: Entry) -> None:
    if pen.queue.place_of(entry.run_id) is None:
        raise UsageError(f"{shown(entry.added.name)} does not wait any more.", hint="ftui queue list")


def set_paused(files: QueueFiles, *, paused: bool) -> bool:
    """Pause a queue or let it go on; `False` where it was so already."""
    with files.changing() as pen:
        if pen.queue.is_paused == paused:
            return False
        pen.write(Paused() if paused else Continued())
    wake(files)
    return True
