"""All sweeps: open one, start one."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError, UsageError
from ftui.sweep.results.sweep_results import ListedSweep, list_sweeps
from ftui.sweep.wake_sweeps import wake, wake_sweeps

from ...drawing.sweeps.sweep_list import list_details, list_title, sweep_list
from ...key_table import CURSOR_KEYS, LEAVE
from ...stage import stage
from ..canvas_screen import ListScreen
from ..dialogs import prompt


class SweepsScreen(ListScreen[None]):
    """One row a sweep."""

    HEADING = "the list of sweeps"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="The trials of this sweep", id="open"),
        Binding("n", "start", "new", tooltip="Check a sweep.toml and start its search", id="new"),
        *CURSOR_KEYS,
        LEAVE,
    ]
    refresh_seconds = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._sweeps: list[ListedSweep] | None = None

    def on_mount(self) -> None:
        self.tick()

    def tick(self) -> None:
        self.look_again(self._look)

    async def _look(self) -> None:
        try:
            self._sweeps, problem = await asyncio.to_thread(_look_and_wake)
        except (FtuiError, OSError) as error:  # it is tried again in a moment: no dialog
            stage(self).note(f"The sweeps cannot be read: {error}", "bad")
            return
        if problem:
            stage(self).note(problem, "bad")
        self.follow_cursor()
        self.draw()

    @property
    def chosen(self) -> ListedSweep | None:
        """The sweep under the cursor."""
        return self._sweeps[self.cursor] if self._sweeps else None

    def line_ids(self) -> Sequence[object]:
        return [one.files.folder for one in self._sweeps or []]

    def draw(self) -> None:
        sweeps, cursor, chosen = self._sweeps, self.cursor, self.chosen
        self.show(
            title=lambda frame: list_title(frame, sweeps),
            body=lambda frame: sweep_list(frame, sweeps, cursor),
            details=lambda frame: list_details(frame, chosen),
        )

    def action_open(self) -> None:
        from .sweep import SweepScreen

        if (chosen := self.chosen) is None:
            return
        if chosen.view is None:
            stage(self).say(chosen.problem, "bad")
        else:
            self.app.push_screen(SweepScreen(chosen.files))

    def action_start(self) -> None:
        prompt(self, "The sweep.toml to start: space, method and budget", "", _file_of, self._start)

    def _start(self, path: Path) -> None:
        stage(self).note(f"Looking at {path}: every end of the space, rows, memory ...", "loss")
        self.change(lambda: _start_sweep(path))


def _look_and_wake() -> tuple[list[ListedSweep], str]:
    """The sweeps, and why one of them cannot be started, if so."""
    try:
        wake_sweeps()
    except OSError as error:
        return list_sweeps(), f"A sweep cannot be started: {error}"
    return list_sweeps(), ""


def _file_of(text: str) -> Path:
    path = Path(text.strip()).expanduser()
    if not text.strip() or not path.is_file():
        raise UsageError("Give a file: docs/sweep.md has an example.")
    return path


def _start_sweep(path: Path) -> str:
    from ftui.helper.client import Helper
    from ftui.sweep.start_sweep import create_sweep, find_sweep_candidate

    with closing(Helper()) as helper:
        candidate = find_sweep_candidate(helper, path)
    files, is_new = create_sweep(candidate)
    wake(files)
    cost = candidate.forecast
    steps = "" if cost.steps is None else f", about {cost.steps:,} steps"
    return f"The sweep {files.name} {'begins' if is_new else 'goes on'}: {candidate.plan.trials} trials{steps}."
