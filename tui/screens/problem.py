"""How a run ended, and why: for runs that failed or were lost, and on demand for any other."""

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from ..drawing.failure import failure
from ..key_table import SCROLL_KEYS
from ..render.spans import Frame, Line
from ..state.run_view import RunView
from .canvas_screen import TextScreen


class ProblemScreen(TextScreen):
    """Over the live view, which is one key away; `resume` is what r does."""

    HEADING = "an ending"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "r", "resume", "resume", tooltip="Resume the run, or start it again if it has saved nothing", id="resume"
        ),
        *SCROLL_KEYS,
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
        self._run_view, self._resume = run_view, resume

    def visible_lines(self, frame: Frame) -> list[Line]:
        run_view = self._run_view
        history, log = run_view.history, run_view.log.lines
        lines, self.top = failure(
            frame, run_view.run.name, run_view.state, history.ended, history.last_words, log, self.top
        )
        return lines

    def action_resume(self) -> None:
        self.app.pop_screen()
        self._resume()
