"""How a run ended, and why: for runs that failed or were lost, and on demand for any other."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..drawing.failure import failure
from ..render.canvas import Canvas
from ..render.spans import Frame, Line
from ..stage import stage
from ..state.run_view import RunView


class ProblemScreen(Screen[None]):
    """Over the live view, which is one key away; `resume` is what r does."""

    HEADING = "an ending"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "resume", "resume", tooltip="Go on from the newest checkpoint", id="resume"),
        Binding("up,k", "scroll(-1)", "up", show=False, tooltip="A line up", id="up"),
        Binding("down,j", "scroll(1)", "down", show=False, tooltip="A line down", id="down"),
        Binding("pageup", "scroll(-10)", "page up", show=False, tooltip="Ten lines up", id="page-up"),
        Binding("pagedown", "scroll(10)", "page down", show=False, tooltip="Ten lines down", id="page-down"),
        Binding(
            "escape,backspace,w,enter",
            "app.pop_screen",
            "its chart",
            key_display="esc",
            tooltip="The live view",
            id="chart",
        ),
        Binding("q", "app.leave", "quit", tooltip="Leave ftui", id="back"),
    ]

    def __init__(self, run_view: RunView, resume: Callable[[], None]) -> None:
        super().__init__()
        self._followed, self._resume = run_view, resume
        self._top, self._is_full = 0, True

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="body")
        yield Canvas(look, id="keys")

    def on_mount(self) -> None:
        self.query_one("#body", Canvas).show(self._lines)
        stage(self).draw_keys()

    def on_screen_resume(self) -> None:
        stage(self).draw_keys()

    def _lines(self, frame: Frame) -> list[Line]:
        run_view = self._followed
        history = run_view.history
        lines = failure(
            frame, run_view.run.name, run_view.state, history.ended, history.last_words, run_view.log.lines, self._top
        )
        self._is_full = len(lines) == frame.height
        return lines

    def action_scroll(self, by: int) -> None:
        if by < 0 or self._is_full:  # no further than the end
            self._top = max(0, self._top + by)
        self.query_one("#body", Canvas).show(self._lines)

    def action_resume(self) -> None:
        self.app.pop_screen()
        self._resume()
