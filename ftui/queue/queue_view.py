"""A queue as people see it: its runs in their order, where each stands, and what it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftui.queue.queue_files import QueueFiles, all_queues, find_entry_run, is_busy
from ftui.queue.slots import choose_starts, find_devices
from ftui.queue.waiting_runs import Entry
from ftui.runs.run_folder import Run
from ftui.runs.state import phase_word
from ftui.runs.status import read_status
from ftui.system.files import UnsafePathError, is_locked


@dataclass(frozen=True)
class QueueRow:
    """A run of a queue. `place`: 1 for the next, `None` for one that was started; `run`: `None` where it is gone.

    `cards`: titles of those it is on, or how many of what it asks for; `memory`: bytes it needs on each.
    """

    name: str
    run: Run | None
    entry: Entry
    place: int | None
    phase: str
    cards: str
    memory: int | None
    reason: str


@dataclass(frozen=True)
class QueueView:
    """All of one queue. `problem`: why it cannot be read, where that is so."""

    root: Path
    rows: Sequence[QueueRow]
    is_paused: bool
    has_dispatcher: bool
    problem: str = ""


def view_queues() -> list[QueueView]:
    """Every queue that is known here; one without a run is left out, unless it is paused.

    One that cannot be read hides no other.
    """
    views = [_view_or_problem(files) for files in all_queues()]
    return [view for view in views if view.rows or view.is_paused or view.problem]


def _view_or_problem(files: QueueFiles) -> QueueView:
    try:
        return _view(files)
    except OSError as error:  # of the volume, or a journal that is no plain file
        return QueueView(files.root, (), is_paused=False, has_dispatcher=False, problem=str(error))


def _view(files: QueueFiles) -> QueueView:
    queue = files.read()
    entries = (*queue.running, *queue.waiting)
    runs = {entry.run_id: find_entry_run(files.root, entry.added.name, entry.run_id) for entry in entries}
    idle = [entry for entry in entries if _is_idle(runs[entry.run_id])]
    reasons = choose_starts(idle).reasons if idle else {}
    titles = _titles(entries)
    rows = []
    for entry in entries:
        run = runs[entry.run_id]
        place = queue.place_of(entry.run_id)
        if run is None:
            reasons[entry.run_id] = "its folder is gone"
        reason = "the queue is paused" if queue.is_paused and entry in idle else reasons.get(entry.run_id, "")
        rows.append(
            QueueRow(
                name=entry.added.name if run is None else run.name, run=run, entry=entry,
                place=None if place is None else place + 1,
                phase="gone" if run is None else phase_word(read_status(run).state.phase),
                cards=_cards(entry, titles), memory=entry.added.memory, reason=reason,
            )
        )  # fmt: skip
    return QueueView(files.root, rows, queue.is_paused, is_locked(files.dispatcher_lock))


def _is_idle(run: Run | None) -> bool:
    try:
        return not is_busy(run)
    except UnsafePathError:  # the dispatcher takes it out
        return False


def _titles(entries: Sequence[Entry]) -> dict[str, str]:
    """What people call the cards that runs are on: `GPU 0`."""
    if not any(entry.started is not None and entry.added.device == "cuda" for entry in entries):
        return {}
    devices, slots = find_devices()
    return {slot.card: f"GPU {device.index}" for device, slot in zip(devices, slots, strict=False)}


def _cards(entry: Entry, titles: dict[str, str]) -> str:
    added, started = entry.added, entry.started
    if added.device != "cuda":
        return added.device.upper()
    if started is not None and started.cards:
        return ", ".join(titles.get(card, card) for card in started.cards)
    return f"{added.num_cards} GPU{'s' if added.num_cards > 1 else ''}"
