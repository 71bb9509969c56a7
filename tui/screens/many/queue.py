"""The runs that wait for a card: their order, what each waits for; add, move, remove, pause."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError, UsageError
from ftui.queue import change
from ftui.queue.queue_files import QueueFiles, all_queues
from ftui.queue.queue_view import QueueRow, QueueView, view_queues
from ftui.queue.wake import wake_dispatchers
from ftui.runs.run_folder import runs_root

from ...drawing.many.queue_table import queue_details, queue_table, queue_title
from ...key_table import BACK, CURSOR_KEYS, Meaning
from ...stage import stage
from ..canvas_screen import ListScreen
from ..dialogs import confirm, prompt

GO_ON = ("go on", "Start runs again")


class QueueScreen(ListScreen[None]):
    """One row a run, those that were started first."""

    HEADING = "the queue"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="Watch this run", id="open"),
        Binding("n", "add", "add", tooltip="Check a profile now, start its run when a card is free", id="new"),
        Binding("K", "place(-1)", "earlier", tooltip="Start this run before the one above it", id="earlier"),
        Binding("J", "place(1)", "later", tooltip="Start this run after the one below it", id="later"),
        Binding("d", "remove", "remove", tooltip="Take this run out of the queue; asks first", id="remove"),
        Binding("p", "pause", "pause", tooltip="Start no more runs; those that are running go on", id="pause"),
        *CURSOR_KEYS,
        BACK,
    ]
    refresh_seconds = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._views: list[QueueView] | None = None

    def on_mount(self) -> None:
        self.tick()

    # -- looking

    def tick(self) -> None:
        self.look_again(self._look)

    async def _look(self) -> None:
        try:
            self._views, problem = await asyncio.to_thread(_look_and_wake)
        except (FtuiError, OSError) as error:  # it is tried again in a moment: no dialog
            stage(self).note(f"The queue cannot be read: {error}", "bad")
            return
        if problem:
            stage(self).note(problem, "bad")
        self.follow_cursor()
        self.draw()

    @property
    def rows(self) -> list[tuple[QueueView, QueueRow]]:
        """Of every queue that is known here."""
        return [(view, row) for view in self._views or [] for row in view.rows]

    @property
    def row(self) -> tuple[QueueView, QueueRow] | None:
        """The run under the cursor, and its queue."""
        return self.rows[self.cursor] if self.rows else None

    def line_ids(self) -> Sequence[object]:
        return [row.entry.run_id for _, row in self.rows]

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """What p does now."""
        return {"pause": GO_ON} if any(view.is_paused for view in self._views or []) else {}

    def draw(self) -> None:
        views, rows, cursor, chosen = self._views, [row for _, row in self.rows], self.cursor, self.row
        view, row = chosen or (None, None)
        stage(self).draw_keys()
        self.show(
            title=lambda frame: queue_title(frame, views),
            body=lambda frame: queue_table(frame, None if views is None else rows, cursor),
            details=lambda frame: queue_details(frame, row, view),
        )

    def action_open(self) -> None:
        if (chosen := self.row) is None:
            return
        if chosen[1].run is None:
            stage(self).say(f"The folder of {chosen[1].name} is gone.", "warn")
        else:
            stage(self).open_run(chosen[1].run)

    # -- changing

    def action_add(self) -> None:
        prompt(self, "The profile to add: a file, a name that ships, or a run to go on", "", _named, self._add)

    def _add(self, text: str) -> None:
        stage(self).note(f"Looking at {text}: rows, model, memory ...", "loss")
        self.change(lambda: _add_profile(text))

    def action_place(self, by: int) -> None:
        if (waiting := self._waiting_row("moved")) is None:
            return
        view, row = waiting
        assert row.place is not None
        place = max(0, row.place - 1 + by)
        self.change(lambda: _move(QueueFiles(view.root), row, place))

    def action_remove(self) -> None:
        if (waiting := self._waiting_row("removed")) is None:
            return
        view, row = waiting
        question = f"Take {row.name} out of the queue? Its folder is deleted, unless it has trained."
        confirm(self, question, "take it out", lambda: self.change(lambda: _remove(QueueFiles(view.root), row)))

    def _waiting_row(self, what: str) -> tuple[QueueView, QueueRow] | None:
        chosen = self.row
        if chosen is not None and chosen[1].place is None:
            stage(self).say(f"{chosen[1].name} was started: only runs that wait can be {what}.", "warn")
            return None
        return chosen

    def action_pause(self) -> None:
        paused = "pause" not in self.key_meanings
        self.change(lambda: _set_paused(paused))


def _look_and_wake() -> tuple[list[QueueView], str]:
    """The queues, and why one of them cannot be started, if so."""
    try:
        wake_dispatchers()
    except OSError as error:
        return view_queues(), f"A queue cannot be started: {error}"
    return view_queues(), ""


def _named(text: str) -> str:
    if not text.strip():
        raise UsageError("Give a file, or a name.")
    return text.strip()


def _add_profile(text: str) -> str:
    from ftui.helper.client import Helper  # with pydantic, which looking does without
    from ftui.launch.open_run import locate_run
    from ftui.queue.add_run import add, find_candidate

    folder, resolved = locate_run(text, None, ())
    with closing(Helper()) as helper:
        candidate = find_candidate(helper, folder, resolved)
    add(candidate)
    wake_dispatchers()
    warnings = candidate.estimate.warnings
    more = f" {len(warnings)} warnings: `ftui run {text} --dry-run` shows them." if warnings else ""
    return f"{candidate.run.name} waits; it {_verdict(candidate.estimate.verdict)}.{more}"


def _verdict(verdict: str) -> str:
    words = {"fits": "fits the card", "likely": "is likely to fit the card", "tight": "may not fit the card"}
    return words.get(verdict, "has no estimate")


def _move(files: QueueFiles, row: QueueRow, place: int) -> str:
    now = change.move(files, row.entry, place)
    return f"{row.name} is number {now + 1} of those that wait."


def _remove(files: QueueFiles, row: QueueRow) -> str:
    is_deleted = change.remove(files, row.entry)
    return f"{row.name} is out of the queue{', and its folder deleted' if is_deleted else ''}."


def _set_paused(paused: bool) -> str:
    for files in all_queues() or [QueueFiles(runs_root())]:
        if files.root.is_dir():
            change.set_paused(files, paused=paused)
    return "The queue is paused: runs that are running go on." if paused else "The queue starts runs."
