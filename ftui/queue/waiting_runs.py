"""What a queue's journal says: records, and the value they come to.

A change is a record before it counts. Which runs are running is told by their own files; the journal only says which
of them the queue has started.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from ftui.system.process_id import Identity

FORM = 1
Kind: TypeAlias = Literal["cuda", "cpu", "mps"]


class _QueueRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    v: int = FORM
    time: float = 0.0


class Added(_QueueRecord, frozen=True, kw_only=True, tag="added"):
    """A run waits from now on: for so many cards of a kind, with `memory` bytes free on each (`None`: not known).

    `visible`: CUDA_VISIBLE_DEVICES where it was added. `attempts`: how many the run had by then.
    """

    run_id: str
    name: str
    device: Kind
    num_cards: int = 1
    memory: int | None = None
    visible: str | None = None
    attempts: int = 0


class Moved(_QueueRecord, frozen=True, kw_only=True, tag="moved"):
    """A waiting run is at that place now; 0 is started next."""

    run_id: str
    place: int


class Removed(_QueueRecord, frozen=True, kw_only=True, tag="removed"):
    """Somebody took a waiting run out."""

    run_id: str


class Started(_QueueRecord, frozen=True, kw_only=True, tag="started"):
    """The run has a supervisor: on these cards, after so many attempts, the last of which came to `step`.

    Without cards somebody else started it. `by` is the dispatcher that says so.
    """

    run_id: str
    by: Identity
    cards: Sequence[str] = ()
    attempts: int = 0
    step: int = 0


class Ended(_QueueRecord, frozen=True, kw_only=True, tag="ended"):
    """The queue has done with a run: how that ended, in the words of its phase or `removed`."""

    run_id: str
    how: str


class Paused(_QueueRecord, frozen=True, kw_only=True, tag="paused"):
    """No run is started from now on."""


class Continued(_QueueRecord, frozen=True, kw_only=True, tag="continued"):
    """Runs are started again."""


AnyLine: TypeAlias = Added | Moved | Removed | Started | Ended | Paused | Continued
KINDS = frozenset(str(line.__struct_config__.tag) for line in get_args(AnyLine))


class Entry(msgspec.Struct, frozen=True):
    """A run of the queue: what it was added with, and its newest start by the queue; `None` while it waits.

    `num_starts`: how many in a row came no further than the one before.
    """

    added: Added
    started: Started | None = None
    num_starts: int = 0

    @property
    def run_id(self) -> str:
        """The run's own id, which it keeps under any name."""
        return self.added.run_id


class Queue(msgspec.Struct, frozen=True):
    """Runs that the queue has started and not seen end, in that order; runs that wait, the next first."""

    running: tuple[Entry, ...] = ()
    waiting: tuple[Entry, ...] = ()
    is_paused: bool = False

    @property
    def is_at_work(self) -> bool:
        """Whether there is something to do for a dispatcher."""
        return bool(self.running or (self.waiting and not self.is_paused))

    def place_of(self, run_id: str) -> int | None:
        """Where a run waits, 0 for the next; `None` where it does not."""
        return next((place for place, entry in enumerate(self.waiting) if entry.run_id == run_id), None)


def fold(queue: Queue, line: AnyLine) -> Queue:
    """The queue after one more record. One that does not fit (its run is gone meanwhile) changes nothing."""
    match line:
        case Paused() | Continued():
            return msgspec.structs.replace(queue, is_paused=isinstance(line, Paused))
        case Added():
            if any(entry.run_id == line.run_id for entry in (*queue.running, *queue.waiting)):
                return queue
            return msgspec.structs.replace(queue, waiting=(*queue.waiting, Entry(line)))
    entry = next((one for one in (*queue.running, *queue.waiting) if one.run_id == line.run_id), None)
    if entry is None:
        return queue
    running = tuple(one for one in queue.running if one is not entry)
    waiting = tuple(one for one in queue.waiting if one is not entry)
    match line:
        case Moved():
            if entry.started is not None:
                return queue
            place = max(0, min(line.place, len(waiting)))
            return msgspec.structs.replace(queue, waiting=(*waiting[:place], entry, *waiting[place:]))
        case Started():
            came_further = entry.started is None or line.step > entry.started.step
            entry = Entry(entry.added, line, 1 if came_further else entry.num_starts + 1)
            running = (*running, entry)
    return msgspec.structs.replace(queue, running=running, waiting=waiting)
