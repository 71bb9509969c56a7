"""The list of all runs: what `ftui` opens on."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError
from ftui.runs.run_folder import Run, check_name

from ..drawing.run_table import details, run_table
from ..key_table import CURSOR_KEYS
from ..render.spans import Frame, Line, spread
from ..stage import stage
from ..state.run_list import RunList, RunRow
from .canvas_screen import ListScreen

MOST_RUNS = 6  # of a comparison (ftui/reports/run_differences.py, which the list does without)


class RunsScreen(ListScreen[None]):
    """One row a run; the cursor stays on its run when the order changes."""

    HEADING = "the list of runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="Watch this run", id="open"),
        Binding("n", "start", "new", tooltip="Start a run, or resume one", id="new"),
        Binding("w", "queue", "queue", tooltip="The runs that wait for a card", id="queue"),
        Binding("c", "checkpoints", "checkpoints", tooltip="The checkpoints of this run", id="checkpoints"),
        Binding("t", "talk", "talk", tooltip="Talk with what this run has trained", id="talk"),
        Binding("e", "after", "export", tooltip="Evaluate, merge, export or push what it has trained", id="after"),
        Binding("o", "rollouts", "answers", show=False, tooltip="The answers it learns from (grpo)", id="rollouts"),
        Binding("s", "sweeps", "sweeps", tooltip="Searches for values, and their trials", id="sweeps"),
        Binding("m", "mark", "mark", tooltip="Mark this run, to be compared with others", id="mark"),
        Binding("v", "compare", "compare", tooltip="Compare the marked runs, two to six", id="compare"),
        Binding("b", "blame", "blame", show=False, tooltip="Which rows are behind a step of this run", id="blame"),
        Binding("d", "remove", "remove", tooltip="Delete this run and all its files; asks first", id="remove"),
        Binding("a", "archive", "archive", tooltip="Leave this run out of the lists; asks first", id="archive"),
        Binding("R", "rename", "rename", tooltip="Give this run another name", id="rename"),
        *CURSOR_KEYS,
        Binding("q", "app.leave", "quit", tooltip="Leave ftui; every run keeps running", id="back"),
    ]

    refresh_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.run_list = RunList()
        self._marked: list[Path] = []

    def tick(self) -> None:
        try:
            self.run_list.look()
        except OSError as error:  # a volume that is away for a moment: what is known stays on the screen
            stage(self).note(f"Not all runs can be read: {error}.", "bad")
        if self._cursor_id is not None:  # else it stays at the top, where a new run appears
            self.follow_cursor()
        self.draw()

    def line_ids(self) -> Sequence[object]:
        return [row.run.folder for row in self.run_list.rows]

    @property
    def row(self) -> RunRow | None:
        """The run under the cursor."""
        return self.run_list.rows[self.cursor] if self.run_list.rows else None

    def draw(self) -> None:
        rows, cursor, row, now = self.run_list.rows, self.cursor, self.row, stage(self).clock()
        there = {row.run.folder for row in rows}
        marked = self._marked = [folder for folder in self._marked if folder in there]
        self.show(
            title=lambda frame: title(frame, rows, len(marked)),
            body=lambda frame: run_table(frame, rows, cursor, now, marked),
            details=lambda frame: details(frame, row, now),
        )

    def action_open(self) -> None:
        if (row := self.row) is not None:
            self.set_cursor(self.cursor)
            stage(self).open_run(row.run)

    def action_start(self) -> None:
        from .start import StartScreen

        self.app.push_screen(StartScreen())

    def action_queue(self) -> None:
        from .many.queue import QueueScreen

        self.app.push_screen(QueueScreen())

    def action_sweeps(self) -> None:
        from .many.sweeps import SweepsScreen

        self.app.push_screen(SweepsScreen())

    def action_blame(self) -> None:
        from .rows.blame import BlameScreen

        if (row := self.row) is not None:
            self.app.push_screen(BlameScreen(row.run))

    def action_rollouts(self) -> None:
        if (row := self.row) is not None:
            from .rollouts.rollout_screen import RolloutsScreen

            self.app.push_screen(RolloutsScreen(row.run))

    def action_mark(self) -> None:
        """Mark the run or take its mark away, and go on to the next."""
        if (row := self.row) is None:
            return
        folder = row.run.folder
        if folder in self._marked:
            self._marked.remove(folder)
        else:
            self._marked.append(folder)
        self.action_move(1)

    def action_compare(self) -> None:
        """The marked runs; where one is marked, it with the one under the cursor."""
        from .many.compare import CompareScreen

        folders = list(self._marked)
        if len(folders) == 1 and self.row is not None and self.row.run.folder not in folders:
            folders.append(self.row.run.folder)
        if not 2 <= len(folders) <= MOST_RUNS:
            stage(self).say(f"Mark two to {MOST_RUNS} runs with m: {len(folders)} marked.", "warn")
            return
        self.app.push_screen(CompareScreen([Run(folder) for folder in folders]))

    def action_checkpoints(self) -> None:
        from .checkpoints import CheckpointsScreen

        if (row := self.row) is not None:
            self.app.push_screen(CheckpointsScreen(row.run))

    def action_talk(self) -> None:
        from .chat import ChatScreen

        if (row := self.row) is not None:
            self.app.push_screen(ChatScreen(row.run))

    def action_after(self) -> None:
        from ..state.after_choices import Weights
        from .after_menu import open_menu

        if (row := self.row) is not None:
            open_menu(self, Weights(row.run))

    # -- which runs there are

    def action_remove(self) -> None:
        if (row := self.row) is not None:
            self.run_worker(self._ask_to_remove(row.run), group="remove", exclusive=True)

    async def _ask_to_remove(self, run: Run) -> None:
        from ftui.launch.manage_runs import describe_removal, plan_removal, remove

        from .dialogs import confirm

        try:
            removal = await asyncio.to_thread(plan_removal, run)
        except FtuiError as error:
            stage(self).complain(error)
            return
        facts = " ".join(line.strip() for line in describe_removal(removal))
        question = f"Delete {facts} It cannot be brought back."
        confirm(self, question, "delete it", lambda: self._change_runs(lambda: remove(run), f"{run.name} is removed."))

    def action_archive(self) -> None:
        from ftui.launch.manage_runs import archive

        from .dialogs import confirm

        if (row := self.row) is not None:
            run = row.run
            back = f"`ftui unarchive {run.name}` brings it back."
            question = f"Leave {run.name} out of the lists? Its files stay as they are; {back}"
            confirm(self, question, "archive it", lambda: self._change_runs(lambda: archive(run), f"Archived. {back}"))

    def action_rename(self) -> None:
        from ftui.launch.manage_runs import rename

        from .dialogs import prompt

        def change(run: Run, name: str) -> None:
            self._change_runs(lambda: rename(run, name), f"{run.name} is now {name}.")

        if (row := self.row) is not None:
            run = row.run
            prompt(self, f"Another name for {run.name}", run.name, check_name, lambda name: change(run, name))

    def _change_runs(self, act: Callable[[], object], words: str) -> None:
        """Change which runs there are: deleting may take a while."""

        def act_and_find() -> str:
            try:
                act()
            finally:
                self.run_list.find_again()
            return words

        self.change(act_and_find)


def title(frame: Frame, rows: list[RunRow], num_marked: int = 0) -> list[Line]:
    """The name of the program, and how many runs there are."""
    living = sum(row.is_running for row in rows)
    right: Line = [(f"{living}", "good" if living else "muted"), (" running  ", "muted")]
    right += [(f"{len(rows)}", "text"), (" runs " if len(rows) != 1 else " run ", "muted")]
    if num_marked:
        right = [(f"{num_marked}", "special"), (" marked  ", "muted"), *right]
    return [spread(frame.width, [(" ftui", "title")], right), []][: frame.height]
