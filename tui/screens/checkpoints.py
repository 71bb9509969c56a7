"""The checkpoints of a run: look at them, read them back, keep or delete them, continue from one of them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
from textual.binding import Binding, BindingType

from ftui import units
from ftui.errors import FtuiError
from ftui.helper.client import Helper
from ftui.runs.checkpoint_index import CheckpointEntry, describe_entry
from ftui.runs.run_folder import Run
from ftui.runs.send_request import CHECKPOINT_REQUESTS, apply_directly
from ftui.text import shown

from ..drawing.checkpoint_table import checkpoint_table, details, title
from ..key_table import BACK, CURSOR_KEYS, Meaning
from ..stage import stage
from ..state.checkpoint_view import CheckpointLook, CheckpointView, reason_set_aside, reason_to_keep, with_checked
from ..state.sent_requests import SentRequests
from .canvas_screen import ListScreen
from .dialogs import confirm

UNPIN = ("unpin", "Let rotation delete it when its time comes")
SOON_SECONDS = 0.4  # until the next look while a request waits for its answer


class CheckpointsScreen(ListScreen[None]):
    """One row a checkpoint; a run that is running gets requests, the files of any other are changed here."""

    HEADING = "the checkpoints of a run"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,r", "resume", "resume", tooltip="Resume from this one (an older one: in a child run)", id="go"),
        Binding("f", "fork", "fork", tooltip="Start a run of its own from this one", id="fork"),
        Binding("t", "talk", "talk", tooltip="Talk with this one", id="talk"),
        Binding("e", "after", "export", tooltip="Evaluate, merge, export or push this one", id="after"),
        Binding("v", "verify", "verify", tooltip="Read every byte of it back and hash it", id="verify"),
        Binding("p", "pin", "pin", tooltip="Keep it for good", id="pin"),
        Binding("d", "delete", "delete", tooltip="Delete it; asks first", id="delete"),
        Binding("b", "blame", "blame", show=False, tooltip="Which rows are behind the step of this one", id="blame"),
        Binding("y", "copy", "copy path", tooltip="Copy the path of its folder", id="copy"),
        *CURSOR_KEYS,
        BACK,
    ]
    CANVASES: ClassVar[Sequence[str]] = ("header", "body", "details")
    refresh_seconds = 2.0

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._browsed = CheckpointView(run)
        self._seen: CheckpointLook | None = None
        self._checked: dict[str, CheckpointEntry] = {}
        self._reading: str | None = None
        self._requests = SentRequests(run)
        self._changing = asyncio.Lock()

    def on_mount(self) -> None:
        self.tick()

    # -- looking

    def tick(self) -> None:
        self.look_again(self._look)

    async def _look(self) -> None:
        try:
            look = await asyncio.to_thread(self._browsed.look)
        except FtuiError as error:  # it is tried again in a moment: no dialog
            stage(self).note(error.message, "bad")
            return
        self._seen = look
        for record in look.answers:
            self._requests.take(record)
        if not look.is_running:
            self._requests.give_up()
        if any(request.outcome == "sent" for request in self._requests.all):
            self.set_timer(SOON_SECONDS, self.tick)
        self.follow_cursor()
        self.draw()

    @property
    def entries(self) -> list[CheckpointEntry] | None:
        """`None` before the first look."""
        return None if self._seen is None else with_checked(self._seen.entries, self._checked)

    @property
    def entry(self) -> CheckpointEntry | None:
        entries = self.entries
        return entries[self.cursor] if entries else None

    def line_ids(self) -> Sequence[object]:
        return [entry.path for entry in self.entries or []]

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """What p does to the checkpoint under the cursor."""
        return {"pin": UNPIN} if self.entry is not None and self.entry.pinned else {}

    def draw(self) -> None:
        name, entries, entry, cursor = self._run.name, self.entries, self.entry, self.cursor
        reading, request, now = self._reading, self._requests.newest, stage(self).clock()
        stage(self).draw_keys()
        self.show(
            header=lambda frame: title(frame, name, entries or []),
            body=lambda frame: checkpoint_table(frame, name, entries, cursor, reading, now),
            details=lambda frame: details(frame, self._run.folder, entry, request, now),
        )

    # -- continuing

    def action_resume(self) -> None:
        entry = self.entry
        if entry is not None and entry.newest and self._seen is not None and self._seen.is_running:
            stage(self).say(f"{self._run.name} is running; f starts another run from here.", "warn")
        else:
            self._continue(own_run=False)

    def action_fork(self) -> None:
        self._continue(own_run=True)

    def _continue(self, *, own_run: bool) -> None:
        """The next screen tells what would happen: without a name the run itself resumes from its newest one."""
        if (entry := self.entry) is None:
            return
        if reason := reason_set_aside(entry) or entry.problem:
            stage(self).say(f"Nobody can continue from {entry.name}: {reason}.", "warn")
            return
        from ..state.launch_plan import first_free  # with pydantic, which browsing does without
        from .resolved import ResolvedScreen

        screen = ResolvedScreen(run=self._run, checkpoint=entry.step)
        if own_run and entry.newest:
            screen.options = replace(screen.options, name=first_free(self._run).name)
        self.app.push_screen(screen)

    def action_talk(self) -> None:
        from .chat import ChatScreen

        if (entry := self.entry) is not None:
            self.app.push_screen(ChatScreen(self._run, entry.name))

    def action_after(self) -> None:
        from ..state.after_choices import Weights
        from .after_menu import open_menu

        if (entry := self.entry) is not None:
            open_menu(self, Weights(self._run, entry.name))

    def action_blame(self) -> None:
        from .rows.blame import BlameScreen

        self.app.push_screen(BlameScreen(self._run, None if self.entry is None else self.entry.step))

    # -- reading back

    def action_verify(self) -> None:
        entry = self.entry
        if entry is not None and entry.path != self._reading:
            self._reading = entry.path
            self.draw()
            stage(self).note(f"Reading {units.size(entry.size)} of {entry.name} back ...", "loss")
            self.run_worker(self._verify(entry), group="verify", exclusive=True)

    async def _verify(self, entry: CheckpointEntry) -> None:
        """In a process of its own: hashing would hold up the keys, and a read that hangs can be killed."""
        helper = Helper()
        try:
            checked = msgspec.convert(
                await asyncio.to_thread(helper.ask, "verify", run=str(self._run.folder), checkpoint=entry.path),
                CheckpointEntry,
            )
            self._checked[entry.path] = checked
            words, tone = f"{entry.name}: {describe_entry(checked)}", "bad"
            if checked.problem is None:
                words, tone = f"{entry.name}: every byte is what it was when it was saved.", "good"
        except FtuiError as error:
            words, tone = f"{entry.name} could not be verified. {' '.join(error.message.split())}", "bad"
        finally:
            helper.close()
            if self._reading == entry.path:  # else another one is being read by now
                self._reading = None
        stage(self).say(words, tone)
        self.draw()

    # -- keeping and deleting

    def action_pin(self) -> None:
        if (entry := self.entry) is None or entry.step is None:
            return
        if reason := reason_set_aside(entry):
            stage(self).say(f"{entry.name} cannot be pinned: {reason}.", "warn")
            return
        self._change("unpin" if entry.pinned else "pin", entry.step)

    def action_delete(self) -> None:
        if (entry := self.entry) is None or self._seen is None:
            return
        if reason := reason_to_keep(self._run, self._seen, entry):
            stage(self).say(f"{entry.name} stays: {reason}.", "warn")
            return
        if (step := entry.step) is None:
            return
        question = f"Delete {entry.name} of {self._run.name} ({units.size(entry.size)})? It cannot be brought back."
        confirm(self, question, "delete it", lambda: self._change("delete", step))

    def _change(self, verb: str, step: int) -> None:
        """By a request where the run is running; the answer comes with the next looks."""
        if self._seen is None or not self._seen.is_running:
            self.run_worker(self._change_here(verb, step), group="change")
            return
        try:
            self._requests.send(self._seen.status, CHECKPOINT_REQUESTS[verb], {"step": step})
        except FtuiError as error:
            stage(self).complain(error)
        self.set_timer(SOON_SECONDS, self.tick)
        self.draw()

    async def _change_here(self, verb: str, step: int) -> None:
        async with self._changing:  # the run's lock is not free for a second one at the same time
            try:
                words = await asyncio.to_thread(apply_directly, self._run, verb, step)
            except FtuiError as error:
                stage(self).complain(error)
                return
        stage(self).say(words, "good")
        self.tick()

    def action_copy(self) -> None:
        if (entry := self.entry) is not None:
            path = str(self._run.folder / entry.path)
            if shown(path) != path:  # a shell would obey a line end in it, and a terminal anything else
                stage(self).say(f"not copied, as there are control characters in it: {path}", "warn")
                return
            self.app.copy_to_clipboard(path)
            stage(self).note(f"copied: {path}")
