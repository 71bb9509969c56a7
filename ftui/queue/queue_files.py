"""The files of a queue in a folder of runs: its journal, appended to under a lock, and the dispatcher's lock."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ftui.errors import DiskError, UsageError
from ftui.queue.waiting_runs import FORM, KINDS, AnyLine, Queue, fold
from ftui.runs.journal import Envelope, append_line
from ftui.runs.run_folder import NAME, Run, all_runs, runs_root
from ftui.runs.status import is_running, read_status
from ftui.system.files import DAMAGED, is_locked, read_plain, wait_lock
from ftui.system.user_folders import known_roots
from ftui.system.volume import disk_error

_decode_envelope = msgspec.json.Decoder(Envelope)
_decode_line = msgspec.json.Decoder(AnyLine)


class QueueFiles(msgspec.Struct, frozen=True):
    """The queue of a folder of runs."""

    root: Path

    @property
    def journal(self) -> Path:
        """The truth: a record a line (ftui/queue/waiting_runs.py), appended under `journal_lock`."""
        return self.root / "queue.jsonl"

    @property
    def journal_lock(self) -> Path:
        """Held by whoever appends."""
        return self.root / ".queue.lock"

    @property
    def dispatcher_lock(self) -> Path:
        """The lock whose holder alone starts runs of this queue."""
        return self.root / ".dispatcher.lock"

    @property
    def dispatcher_log(self) -> Path:
        """What the dispatcher prints: what it starts, and its troubles."""
        return self.root / "queue.log"

    def read(self) -> Queue:
        """The queue as it stands. A last line that a crash tore, and lines of a later version, are left out.

        Raises:
            UnsafePathError: the journal is something else than a plain file, or longer than any.
        """
        try:
            data = read_plain(self.journal)
        except FileNotFoundError:
            return Queue()
        queue = Queue()
        for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
            if (record := _decode(line)) is not None:
                queue = fold(queue, record)
        return queue

    @contextlib.contextmanager
    def changing(self) -> Iterator["Pen"]:
        """Hold the journal inside the block: what is read there is what one adds to.

        Raises:
            DiskError: the volume refuses it.
        """
        try:
            with wait_lock(self.journal_lock):
                yield Pen(self)
        except OSError as error:
            if isinstance(error, DiskError):
                raise
            raise disk_error(error, f"{self.journal} cannot be written", self.root) from error


class Pen:
    """The right to append to a queue's journal; `queue` is what it says so far."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self.queue = files.read()

    def write(self, line: AnyLine) -> None:
        """Append one record, on the disk before this returns. What a crash left of the last line is cut away first."""
        line = msgspec.structs.replace(line, time=time.time())
        append_line(self._files.journal, msgspec.json.encode(line))
        self.queue = fold(self.queue, line)


def _decode(line: bytes) -> AnyLine | None:
    try:
        envelope = _decode_envelope.decode(line)
        return _decode_line.decode(line) if envelope.kind in KINDS and envelope.v <= FORM else None
    except DAMAGED:
        return None


def all_queues() -> list[QueueFiles]:
    """The queues of this root and of the known ones, this one first."""
    roots = dict.fromkeys([runs_root(), *known_roots()])
    return [queue for root in roots if (queue := QueueFiles(root)).journal.exists()]


def find_entry_run(root: Path, name: str, run_id: str) -> Run | None:
    """The run with this id: under the name it was added with, or another by now; `None` where it is gone."""
    own = [Run(root / name)] if NAME.fullmatch(name) else []  # whoever wrote the journal: no path leads elsewhere
    for run in (*own, *_others(root)):
        try:
            if run.read_facts().run_id == run_id:
                return run
        except UsageError:
            continue
    return None


def _others(root: Path) -> Iterator[Run]:
    for archived in (False, True):
        yield from (run for run in all_runs(archived=archived) if run.folder.parent == root)


def is_busy(run: Run | None) -> bool:
    """Whether something works on a run, or it is gone: one that was started and is not busy is continued."""
    return run is None or is_running(read_status(run)) or is_locked(run.supervisor_lock)
