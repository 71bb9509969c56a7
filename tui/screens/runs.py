"""The list of all runs: what `ftui` opens on."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer

from ..drawing.run_table import details, run_table
from ..render.canvas import Canvas
from ..render.spans import Frame, Line, spread
from ..stage import stage
from ..state.run_list import RunList, RunRow

LOOK_SECONDS = 1.0
PAGE = 10


class RunsScreen(Screen[None]):
    """One row a run; the cursor stays on its run when the order changes."""

    HEADING = "the list of runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="Watch this run", id="open"),
        Binding("n", "start", "new", tooltip="Start a run, or go on with one", id="new"),
        Binding("c", "checkpoints", "checkpoints", tooltip="The checkpoints of this run", id="checkpoints"),
        Binding("up,k", "move(-1)", "up", show=False, tooltip="The run above", id="up"),
        Binding("down,j", "move(1)", "down", show=False, tooltip="The run below", id="down"),
        Binding("pageup", f"move(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} runs up", id="page-up"),
        Binding("pagedown", f"move({PAGE})", "page down", show=False, tooltip=f"{PAGE} runs down", id="page-down"),
        Binding("home", "move(-1000000)", "first", show=False, tooltip="The first run", id="first"),
        Binding("end", "move(1000000)", "last", show=False, tooltip="The last run", id="last"),
        Binding("q", "app.leave", "quit", tooltip="Leave ftui; every run goes on", id="back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.run_list = RunList()
        self._chosen: RunRow | None = None
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="title")
        yield Canvas(look, id="body")
        yield Canvas(look, id="details")
        yield Canvas(look, id="keys")

    def on_mount(self) -> None:
        self.tick()
        stage(self).draw_keys()
        self._timer = self.set_interval(LOOK_SECONDS, self.tick)

    def on_screen_suspend(self) -> None:
        if self._timer is not None:
            self._timer.pause()

    def on_screen_resume(self) -> None:
        if self._timer is not None:
            self._timer.resume()
            self.tick()
        stage(self).draw_keys()

    def tick(self) -> None:
        try:
            self.run_list.look()
        except OSError as error:  # a volume that is away for a moment: what is known stays on the screen
            stage(self).say(f"Not all runs can be read: {error}.", "bad")
        self._draw()

    @property
    def cursor(self) -> int:
        """Where in the list the chosen run stands now."""
        rows = self.run_list.rows
        return next((i for i, row in enumerate(rows) if row is self._chosen), 0)

    @property
    def row(self) -> RunRow | None:
        return self.run_list.rows[self.cursor] if self.run_list.rows else None

    def _draw(self) -> None:
        rows, cursor, row, now = self.run_list.rows, self.cursor, self.row, stage(self).clock()
        self.query_one("#title", Canvas).show(lambda frame: title(frame, rows))
        self.query_one("#body", Canvas).show(lambda frame: run_table(frame, rows, cursor, now))
        self.query_one("#details", Canvas).show(lambda frame: details(frame, row, now))

    def action_move(self, by: int) -> None:
        rows = self.run_list.rows
        if rows:
            self._chosen = rows[max(0, min(len(rows) - 1, self.cursor + by))]
            self._draw()

    def action_open(self) -> None:
        if (row := self.row) is not None:
            self._chosen = row
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
    right: Line = [(f"{living}", "good" if living else "muted"), (" alive  ", "muted")]
    right += [(f"{len(rows)}", "text"), (" runs " if len(rows) != 1 else " run ", "muted")]
    return [spread(frame.width, [(" ftui", "title")], right), []][: frame.height]
