"""Runs the hooks of a run, one after the other, each on record before it begins."""

import contextlib
import time
from collections import deque

from ftui.errors import DiskError
from ftui.hooks.hook_events import HookEvent, environment_of, event_of, is_outdated
from ftui.hooks.hook_settings import HookSettings
from ftui.hooks.run_command import run_command
from ftui.runs.journal import Tail, Writer
from ftui.runs.records.hook_records import JOURNAL, HookBegan, HookEnded
from ftui.runs.run_folder import Run

CUT_SHORT = "was cut short when its process was ended"


class HookRunner:
    """The holder of hooks/lock has one. `writer` appends to its journal."""

    def __init__(self, run: Run, settings: HookSettings, writer: Writer) -> None:
        self._run, self._settings, self._writer = run, settings, writer
        self._tail = Tail(run.journal)
        self._attempt = 0  # the newest there is a record of
        self._waiting: deque[HookEvent] = deque()
        began: dict[tuple[str, int, int], bool] = {}
        for record in Tail(run.hooks / JOURNAL).read():
            if isinstance(record, HookBegan | HookEnded):
                began[record.event, record.attempt, record.step] = isinstance(record, HookEnded)
        for (event, attempt, step), has_ended in began.items():
            if not has_ended:
                ended = HookEnded(event=event, step=step, seconds=0.0, problem=CUT_SHORT)
                self._note(HookEvent(event, attempt, step), ended)
        self._begun = set(began)

    def look(self) -> None:
        """Take in what is new in the run's journal, and run the hooks of all that waits."""
        for record in self._tail.read():
            self._attempt = max(self._attempt, record.attempt)
            event = event_of(self._run, record)
            if event is not None:
                self.add(event)
        while self._waiting:
            if not self._take(self._waiting[0]):
                return
            self._waiting.popleft()

    def add(self, event: HookEvent) -> None:
        """Let an event wait for its turn, if it has a command that has not begun before."""
        if event.name in self._settings.commands and event.key not in self._begun:
            self._waiting.append(event)

    def _take(self, event: HookEvent) -> bool:
        """Run its command; says whether that is over, which it is not where nothing can be put on record."""
        if is_outdated(event, self._attempt):
            return True
        words = self._settings.commands[event.name]
        if not self._note(event, HookBegan(event=event.name, step=event.step, command=words)):
            return False
        self._begun.add(event.key)
        begun = time.monotonic()
        problem = run_command(words, environment_of(self._run, event), self._run.folder, self._settings.timeout_seconds)
        seconds = time.monotonic() - begun
        self._note(event, HookEnded(event=event.name, step=event.step, seconds=seconds, problem=problem))
        return True

    def _note(self, event: HookEvent, record: HookBegan | HookEnded) -> bool:
        self._writer.attempt = event.attempt
        with contextlib.suppress(DiskError):
            self._writer.write(record, durable=True)
            return True
        return False
