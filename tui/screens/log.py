"""All that a run's engine printed, to scroll through; it follows the end until somebody scrolls up."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ftui.runs.run_folder import Run

from ..render.canvas import Canvas
from ..render.spans import Frame, Line, spread
from ..stage import stage
from ..state.tails import LogTail

LOOK_SECONDS = 0.5


class LogScreen(Screen[None]):
    """The newest lines of engine.log (`ftui log RUN` prints them all)."""

    HEADING = "a log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "up", tooltip="A line up", id="up"),
        Binding("down,j", "scroll(1)", "down", tooltip="A line down", id="down"),
        Binding("pageup", "scroll(-20)", "page up", show=False, tooltip="20 lines up", id="page-up"),
        Binding("pagedown", "scroll(20)", "page down", show=False, tooltip="20 lines down", id="page-down"),
        Binding("home", "scroll(-1000000)", "first", show=False, tooltip="The oldest line", id="first"),
        Binding("end", "scroll(1000000)", "end", tooltip="The newest line; follow it", id="end"),
        Binding(
            "escape,backspace,q", "app.pop_screen", "back", key_display="esc", tooltip="Back to the run", id="back"
        ),
    ]

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._tail = LogTail(run)
        self._up = 0  # lines between the last one shown and the newest

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="body")
        yield Canvas(look, id="keys")

    def on_mount(self) -> None:
        self.tick()
        stage(self).draw_keys()
        self.set_interval(LOOK_SECONDS, self.tick)

    def on_screen_resume(self) -> None:
        stage(self).draw_keys()

    def tick(self) -> None:
        while self._tail.look():
            continue
        self.query_one("#body", Canvas).show(self._lines)

    def action_scroll(self, by: int) -> None:
        self._up = max(0, min(self._up - by, len(self._tail.lines) - 1))
        self.query_one("#body", Canvas).show(self._lines)

    def _lines(self, frame: Frame) -> list[Line]:
        lines = list(self._tail.lines)
        end = max(min(len(lines), frame.height - 1), len(lines) - self._up)
        where = "the end" if end == len(lines) else f"line {end:,} of {len(lines):,}"
        head = spread(
            frame.width, [(f" {self._run.name} ", "title"), ("engine.log", "muted")], [(f"{where} ", "faint")]
        )
        if not lines:
            return [head, [(" The engine has printed nothing yet.", "muted")]]
        return [head, *([(" ", "text"), (line, "text")] for line in lines[max(0, end - frame.height + 1) : end])]
