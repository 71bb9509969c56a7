"""How a run stands, judged from its files alone: what they say, and whether their processes are still running."""

import heapq
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ftui.errors import LostRunError, UsageError
from ftui.runs.events import AnyRecord
from ftui.runs.journal import PIECE, Tail
from ftui.runs.records.hook_records import JOURNAL
from ftui.runs.records.record import Phase
from ftui.runs.records.signs_of_life import Beat
from ftui.runs.records.spending import Spent, add_sign, spent
from ftui.runs.reduce import fold
from ftui.runs.restart_policy import may_follow
from ftui.runs.run_folder import Run
from ftui.runs.state import RunState
from ftui.system.files import DAMAGED, UnsafePathError, read_json, read_plain
from ftui.system.process_id import Identity, is_alive, this_process
from ftui.system.segments import total_bytes

FORM = 3  # 1 knew nothing of restarts, 2 nothing of what attempts cost
BEAT_SECONDS = 2.5  # a working engine writes beat.json about once a second
FRESH_SECONDS = 30.0  # an older beat, by this machine's clock, is no sign of life of another one
QUEUED_SECONDS = 60.0  # how long a run that was opened may wait for its supervisor before it counts as lost

_ON_LINUX: bool = sys.platform == "linux"


class Offsets(msgspec.Struct, frozen=True):
    """Bytes of each record file that are in the state: a reader continues from there."""

    metrics: int = 0
    supervisor: int = 0
    journal: int = 0
    pushes: int = 0
    hooks: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of status.json.

    Only readers set these: `unwatched`, the engine is running and nobody records how it will end;
    `frozen`, it is running but was stopped by a signal; `unreadable`, what stands in place of one of its files;
    `elsewhere`, its engine is one of another machine or container, and gave a sign of life just now.
    """

    v: int = FORM
    time: float = 0.0
    state: RunState = RunState()
    supervisor: Identity | None = None
    engine: Identity | None = None
    offsets: Offsets = Offsets()
    unwatched: bool = False
    frozen: bool = False
    unreadable: str = ""
    elsewhere: bool = False


class Watch:
    """Follows one run: folds what is new in its record files into `state`, starting from status.json or from `since`.

    `problem`: why one of them cannot be read, where something else stands in its place.
    """

    def __init__(self, run: Run, since: Status | None = None) -> None:
        self._run = run
        last = _read_stored_status(run) if since is None else since
        self.state = last.state
        self.problem = ""
        offsets = last.offsets
        # The journal last: whatever a metrics line builds on was in the journal before it.
        self._tails = (
            Tail(run.metrics, offsets.metrics),
            Tail(run.supervisor_log, offsets.supervisor),
            Tail(run.journal, offsets.journal),
            Tail(run.pushes, offsets.pushes),
            Tail(run.hooks / JOURNAL, offsets.hooks),
        )

    @property
    def offsets(self) -> Offsets:
        """Bytes of each record file that are folded into `state`."""
        return Offsets(*(tail.offset for tail in self._tails))

    def catch_up(self) -> None:
        """Fold all there is, in pieces: the files of a long run do not fit in a small process."""
        for tail in self._tails:
            for record in self._pieces(tail):
                self.state = fold(self.state, record)

    def replay(self) -> Iterator[tuple[AnyRecord, RunState]]:
        """All there is, as `read` gives it, in pieces."""
        for record in heapq.merge(*map(self._pieces, self._tails), key=lambda record: record.time):
            self.state = fold(self.state, record)
            yield record, self.state

    def _pieces(self, tail: Tail) -> Iterator[AnyRecord]:
        before = -1
        while tail.offset != before:
            before = tail.offset
            yield from self._read(tail, PIECE)

    def read(self) -> list[tuple[AnyRecord, RunState]]:
        """The records added since the last call, by time, each with the state it led to."""
        self.problem = ""  # a volume may answer again
        batches = [self._read(tail) for tail in self._tails]
        news = []
        for record in heapq.merge(*batches, key=lambda record: record.time):
            self.state = fold(self.state, record)
            news.append((record, self.state))
        return news

    def _read(self, tail: Tail, limit: int | None = None) -> list[AnyRecord]:
        try:
            return tail.read(limit)
        except OSError as error:  # something else in its place, or a volume that fails
            self.problem = error.message if isinstance(error, UnsafePathError) else f"{tail.path}: {error}"
            return []


def _read_stored_status(run: Run) -> Status:
    """status.json, or an empty one where it is missing, damaged, of another form, or not about these files."""
    try:
        status = read_json(run.status, Status)
    except UnsafePathError as error:
        return Status(unreadable=error.message)
    except RecursionError:  # what a bad disk damages does not come out nested two thousand deep
        return Status(unreadable=f"{run.status} holds no status of a run.")
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Status()
    covered = (
        (run.metrics, status.offsets.metrics),
        (run.supervisor_log, status.offsets.supervisor),
        (run.journal, status.offsets.journal),
        (run.pushes, status.offsets.pushes),
        (run.hooks / JOURNAL, status.offsets.hooks),
    )
    try:
        is_whole = all(not offset or total_bytes(path) >= offset for path, offset in covered)
    except UnsafePathError:  # reading it says so
        is_whole = False
    return status if status.v == FORM and is_whole else Status()


def read_status(run: Run) -> Status:
    """The status of a run now, from its files and processes.

    Never waits and never locks. A run whose processes are gone (killed, another boot, a copied folder) and that has no
    ending is `lost`.
    """
    watch = Watch(run)
    watch.catch_up()
    return judge(run, watch)


def judge(run: Run, watch: Watch) -> Status:
    """The status of a run that is being watched: its state, and which of its processes are running."""
    stored = _read_stored_status(run)
    supervisor, engine = (own_process(run, process) for process in (stored.supervisor, watch.state.engine))
    status = Status(
        time=time.time(), state=watch.state, supervisor=supervisor, engine=engine, offsets=watch.offsets,
        unreadable=watch.problem or stored.unreadable,
    )  # fmt: skip
    if is_alive(status.engine):
        return msgspec.structs.replace(
            status, unwatched=not is_alive(supervisor), frozen=status.engine is not None and is_frozen(status.engine)
        )
    if watch.state.exit_code is not None or is_alive(supervisor):
        return status
    watch.read()  # the last words may have come between the reading and the look at the processes
    if watch.state.exit_code is None and _is_elsewhere(run, watch.state):
        return msgspec.structs.replace(status, state=watch.state, offsets=watch.offsets, elsewhere=True)
    phase: Phase = watch.state.phase if watch.state.exit_code is not None or _is_new(run, watch.state) else "lost"
    spending = watch.state.spending
    if phase == "lost":
        spending = add_sign(spending, watch.state.attempt, last_seen(run, watch.state))
    state = msgspec.structs.replace(watch.state, phase=phase, spending=spending)
    return msgspec.structs.replace(status, state=state, offsets=watch.offsets)


def last_seen(run: Run, state: RunState) -> float | None:
    """When this attempt was last seen alive, by its own beat or by its supervisor; `None` where neither says.

    While a run is paused its records say nothing.
    """
    stored, seen = _read_stored_status(run), list[float]()
    if (stored.state.attempt, stored.state.token) == (state.attempt, state.token) and stored.state.exit_code is None:
        seen.append(stored.time)
    try:
        beat = read_json(run.beat, Beat)
    except (OSError, *DAMAGED):
        return max(seen, default=None)
    if (beat.attempt, beat.token) == (state.attempt, state.token):
        seen.append(beat.time)
    return max(seen, default=None)


def spent_so_far(status: Status) -> Spent:
    """What all attempts of the run took and cost when `status` was judged."""
    state = status.state
    alive = status.time if is_alive(status.engine) and state.exit_code is None else None
    spending = add_sign(state.spending, state.attempt, state.paced_from, state.step_time, alive)
    return spent(spending.spans, status.time if is_alive(status.supervisor) else None)


def own_process(run: Run, process: Identity | None) -> Identity | None:
    """The process, unless it is one of ftui's that works on another folder: this one was copied from there, then."""
    if process is None or not _ON_LINUX or not is_alive(process):
        return process
    try:
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        cwd = Path(os.readlink(f"/proc/{process.pid}/cwd"))
    except OSError:  # it has just ended, or belongs to somebody else
        return process
    elsewhere = bool({b"ftui.engine", b"ftui.supervisor"} & {*command}) and cwd != run.folder.resolve()
    return None if elsewhere else process


def _is_new(run: Run, state: RunState) -> bool:
    """Whether no supervisor has written yet, and the run waits in a queue or was opened just now."""
    try:
        facts = run.read_facts()
    except UsageError:
        return False
    return state.attempt == 0 and (facts.queued or 0 <= time.time() - facts.created < QUEUED_SECONDS)


def _is_elsewhere(run: Run, state: RunState) -> bool:
    """Whether the engine is one of another machine, and says that its beat is of just now. (The file may be newer: of
    a run that was killed and copied.) Clocks may differ: that says how a run is shown, and whether it can be asked
    something; never whether it may be started."""
    own, engine = this_process(), state.engine
    if engine is None or (engine.boot, engine.namespace) == (own.boot, own.namespace):
        return False
    if state.host == socket.gethostname():  # of an earlier boot, or an earlier container in this one's place
        return False
    try:
        return abs(time.time() - read_json(run.beat, Beat).time) < FRESH_SECONDS
    except (OSError, *DAMAGED):
        return False


def run_is_running(run: Run) -> bool:
    """Whether an engine or a supervisor works on this run, seen from this boot and pid namespace."""
    return is_running(read_status(run))


def is_running(status: Status) -> bool:
    """Whether the engine or the supervisor of that status still runs, seen from this boot and pid namespace."""
    return is_alive(status.engine) or is_alive(status.supervisor)


def only_pushes(status: Status) -> bool:
    """Whether the run has finished, its engine is gone, and its supervisor still sends the result somewhere."""
    return status.state.phase == "finished" and not is_alive(status.engine) and is_alive(status.supervisor)


def list_order(run: Run, status: Status, created: float | None) -> tuple[bool, float, str]:
    """Sorts runs as every list has them: those that are running first, then the others, the newest first."""
    return not is_running(status), -(created or 0.0), run.name


def refuse_if_elsewhere(run: Run, status: Status) -> None:
    """A run on a shared volume may run on a machine whose processes cannot be seen from here: look at its beat.

    Raises:
        LostRunError: it does.
    """
    own, owner = this_process(), status.engine
    if owner is None or status.state.exit_code is not None:
        return
    if (own.boot, own.namespace) == (owner.boot, owner.namespace) or not run.beat.exists():
        return
    before = read_plain(run.beat)
    time.sleep(BEAT_SECONDS)
    if read_plain(run.beat) != before:
        raise LostRunError(
            f"{run.name} is being trained on another machine or in another container ({status.state.host}).",
            hint="Go there to see it; another --name starts a run here.",
        )


def is_final(status: Status) -> bool:
    """Whether the run has ended and its supervisor will not start it again by itself."""
    return status.state.exit_code is not None and not (may_follow(status.state) and is_alive(status.supervisor))


def is_frozen(engine: Identity) -> bool:
    """Whether a running process was stopped by a signal (SIGSTOP), or by a debugger."""
    if _ON_LINUX:
        try:
            stat = Path(f"/proc/{engine.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] in "Tt"
    import psutil  # only where there is no /proc

    try:
        return psutil.Process(engine.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False
