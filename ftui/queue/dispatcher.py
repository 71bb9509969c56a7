"""Starts the runs of one queue (`python -P -m ftui.queue ROOT [LOCK_FD]`), and ends when there is nothing left to do.

It may be killed at any moment: runs, cards and supervisors have locks of their own, what it has done stands in the
journal or in the run's own files, and any command of ftui starts the next one.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ftui.errors import PREEMPTED_NOT_SAVED, PREEMPTED_SAVED, FtuiError
from ftui.hardware.card_locks import take_cards
from ftui.launch.manage_runs import unarchive
from ftui.queue.queue_files import Pen, QueueFiles, find_entry_run, is_busy
from ftui.queue.slots import choose_starts
from ftui.queue.waiting_runs import Ended, Entry, Removed, Started
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState, phase_word
from ftui.runs.status import Status, is_running, read_status, refuse_if_elsewhere
from ftui.supervisor.engine_process import say
from ftui.supervisor.nodes.node_place import RANK_VARIABLES
from ftui.supervisor.spawn import ensure_supervised, launch
from ftui.system.files import Lock, UnsafePathError, lock_from, try_lock
from ftui.system.process_id import Identity, this_process

TICK_SECONDS = 1.0
TROUBLE_SECONDS = 10.0  # until it tries again where the volume does not answer
MOST_STARTS = 5  # of a run that dies with its supervisor and comes no further


class Dispatcher:
    """One look after the other at the runs of a queue. The caller holds its dispatcher's lock."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self._own = this_process()
        self._troubles: dict[str, str] = {}

    def tick(self) -> bool:
        """Note what has ended, start what can be started; whether there is anything left to wait for."""
        queue = self._files.read()
        entries = (*queue.running, *queue.waiting)
        readable = {entry.run_id for entry in entries if self._manages(self._look_at, entry)}
        queue = self._files.read()
        if queue.is_paused:
            return queue.is_at_work
        idle = [entry for entry in queue.running if entry.run_id in readable and not is_busy(self._run_of(entry))]
        entries = (*idle, *(entry for entry in queue.waiting if entry.run_id in readable))
        for run_id, cards in (choose_starts(entries).starts if entries else {}).items():
            entry = next(entry for entry in entries if entry.run_id == run_id)
            self._manages(self._start, entry, cards)
        return queue.is_at_work

    def _manages(self, act: Callable[..., None], entry: Entry, *arguments: object) -> bool:
        """Whether that can be done with a run now: what is wrong with one folder holds up no other run."""
        try:
            act(entry, *arguments)
        except UnsafePathError as error:
            self._write(entry, _ended(entry, "unreadable"))
            trouble = f"{entry.added.name} is out of the queue: {error}"
        except (OSError, FtuiError) as error:
            trouble = f"{entry.added.name}: {error}"
        else:
            self._troubles.pop(entry.run_id, None)
            return True
        if self._troubles.get(entry.run_id) != trouble:  # it is tried every second
            self._troubles[entry.run_id] = trouble
            say(trouble)
        return False

    def leave(self, lock: Lock) -> bool:
        """Let go of the lock, unless somebody has added a run since: nobody adds one in this moment."""
        with self._files.changing() as pen:
            if pen.queue.is_at_work:
                return False
            lock.close()
            return True

    def _look_at(self, entry: Entry) -> None:
        """Bring the journal up to what the run's own files say."""
        run = self._run_of(entry)
        if run is None:
            self._write(entry, Removed(run_id=entry.run_id) if entry.started is None else _ended(entry, "removed"))
            return
        status = ensure_supervised(run, read_status(run))
        if not is_running(status):
            run.check()
        if entry.started is None and status.state.attempt > entry.added.attempts:  # by hand, or by one that was killed
            started = Started(run_id=entry.run_id, by=self._own, attempts=entry.added.attempts)
            if self._write(entry, started):
                entry = Entry(entry.added, started, 1)
        if entry.started is not None and (how := how_it_ended(entry, status, self._own)):
            self._write(entry, _ended(entry, how))
            say(f"{run.name}: {how}.")

    def _start(self, entry: Entry, cards: Sequence[str]) -> None:
        """Start or continue a run on these cards, unless somebody else does or has one of them."""
        run = self._run_of(entry)
        lock = None if run is None else try_lock(run.supervisor_lock)
        if run is None or lock is None:
            return
        with ExitStack() as stack:
            stack.callback(lock.close)
            state = self._startable(entry, run)
            locks = None if state is None else take_cards(cards)
            if state is None or locks is None:
                return
            for one in locks:
                stack.callback(one.close)  # the supervisor has its own copies
            record = Started(run_id=entry.run_id, by=self._own, cards=cards, attempts=state.attempt, step=state.step)
            with self._files.changing() as pen:  # nobody takes it out, or pauses the queue, in this moment
                if not _is_in(pen, entry) or pen.queue.is_paused:
                    return
                unarchive(run)
                launch(run, lock, locks)
                pen.write(record)
        say(f"{run.name} is started on {', '.join(cards)}.")

    def _startable(self, entry: Entry, run: Run) -> RunState | None:
        """The state of a run whose supervisor's lock is ours; `None` where it is not to be started now.

        Another dispatcher may have started it, and been killed before it said so.

        Raises:
            UnsafePathError: it never can be.
            LostRunError: another machine works on it.
        """
        status = read_status(run)
        if is_running(status) or (entry.started is None and status.state.attempt > entry.added.attempts):
            return None
        if entry.started is not None and how_it_ended(entry, status, self._own):
            return None
        run.check()
        refuse_if_elsewhere(run, status)
        return status.state

    def _run_of(self, entry: Entry) -> Run | None:
        return find_entry_run(self._files.root, entry.added.name, entry.run_id)

    def _write(self, entry: Entry, line: Started | Ended | Removed) -> bool:
        """Append it, if the run is still in the queue: somebody may just have taken it out."""
        with self._files.changing() as pen:
            if not _is_in(pen, entry):
                return False
            pen.write(line)
            return True


def _is_in(pen: Pen, entry: Entry) -> bool:
    return any(one.run_id == entry.run_id for one in (*pen.queue.running, *pen.queue.waiting))


def _ended(entry: Entry, how: str) -> Ended:
    return Ended(run_id=entry.run_id, how=how)


def how_it_ended(entry: Entry, status: Status, own: Identity) -> str:
    """In a word or two, how a run that the queue started has ended for good; empty while it has not.

    What a shutdown of the machine has ended goes on after it, and so does what left no ending at all: killed with its
    supervisor, or the power was cut.
    """
    state, started = status.state, entry.started
    assert started is not None
    if is_running(status):
        return ""
    if status.unreadable:
        return "unreadable"
    if state.exit_code is None or state.restarting or state.attempt <= started.attempts:
        gone_too_often = entry.num_starts >= MOST_STARTS and state.step <= started.step
        return f"lost, {MOST_STARTS} times at step {state.step}" if gone_too_often else ""
    was_preempted = state.exit_code in (PREEMPTED_SAVED, PREEMPTED_NOT_SAVED)
    is_restarted = (started.by.boot, started.by.namespace) != (own.boot, own.namespace)
    return "" if was_preempted and is_restarted else phase_word(state.phase)


def main(arguments: Sequence[str]) -> int:
    """0 when there is nothing left to do, or another dispatcher already does it."""
    if len(arguments) not in (1, 2) or not all(text.isdecimal() for text in arguments[1:]):
        say("usage: python -P -m ftui.queue ROOT [LOCK_FD]")
        return 2
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name in RANK_VARIABLES:  # a task of a launcher may have started this; a queue has the cards of one machine
        os.environ.pop(name, None)
    files = QueueFiles(Path(arguments[0]).absolute())
    try:
        lock = lock_from(int(arguments[1])) if len(arguments) == 2 else try_lock(files.dispatcher_lock)
        return 0 if lock is None else dispatch(files, lock)
    except FtuiError as error:
        say(error.message)
        return error.exit_code


def dispatch(files: QueueFiles, lock: Lock) -> int:
    """Start runs until there is nothing left to do. A full disk, or a volume that is away for a while, ends nothing.

    Raises:
        UnsafePathError: the journal is something else than a plain file.
    """
    dispatcher, trouble = Dispatcher(files), ""
    while files.root.is_dir():
        try:
            if not dispatcher.tick() and dispatcher.leave(lock):
                break
            time.sleep(TICK_SECONDS)
        except UnsafePathError:
            raise
        except (OSError, FtuiError) as error:
            if str(error) != trouble:
                trouble = str(error)
                say(f"{trouble}: tried again every {TROUBLE_SECONDS:.0f} s.")
            time.sleep(TROUBLE_SECONDS)
    return 0
