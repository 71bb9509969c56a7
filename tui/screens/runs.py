"""The list of all runs: what `ftui` opens on."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ..drawing.run_table import details, run_table
from ..key_table import CURSOR_KEYS
from ..render.spans import Frame, Line, spread
from ..stage import stage
from ..state.run_list import RunList, RunRow
from .canvas_screen import ListScreen


class RunsScreen(ListScreen[None]):
    """One row a run; the cursor stays on its run when the order changes."""

    HEADING = "the list of runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="Watch this run", id="open"),
        Binding("n", "start", "new", tooltip="Start a run, or resume one", id="new"),
        Binding("c", "checkpoints", "checkpoints", tooltip="The checkpoints of this run", id="checkpoints"),
        *CURSOR_KEYS,
        Binding("q", "app.leave", "quit", tooltip="Leave ftui; every run keeps running", id="back"),
    ]

    refresh_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.run_list = RunList()

    def on_mount(self) -> None:
        self.tick()

    def tick(self) -> None:
        try:
            self.run_list.look()
        except OSError as error:  # a volume that is away for a moment: what is known stays on the screen
            stage(self).say(f"Not all runs can be read: {error}.", "bad")
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
        self.show(
            title=lambda frame: title(frame, rows),
            body=lambda frame: run_table(frame, rows, cursor, now),
            details=lambda frame: details(frame, row, now),
        )

    def action_open(self) -> None:
        if (row := self.row) is not None:
            self.set_cursor(self.cursor)
            stage(self).open_run(row.run)

    def action_start(self) -> None:
        from .start import StartScreen

        self.app.push_screen(StartScreen())

    def action_checkpoints(self) -> None:
        from .checkpoints import CheckpointsScreen

        if (row := self.row) is not None:
            self.app.push_screen(CheckpointsScreen(row.run))


def title(frame: Frame, rows: list[RunRow]) -> list[Line]:
    """The name of the program, and how many runs there are."""
    living = sum(row.is_running for row in rows)
    right: Line = [(f"{living}", "good" if living else "muted"), (" running  ", "muted")]
    right += [(f"{len(rows)}", "text"), (" runs " if len(rows) != 1 else " run ", "muted")]
    return [spread(frame.width, [(" ftui", "title")], right), []][: frame.height]
