"""What differs between the draft and something else, to be read up and down."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..drawing.editor.form_diff import DiffPage, diff_lines, diff_title
from ..key_table import PAGING
from ..render.canvas import Canvas
from ..render.spans import Frame, Line
from ..stage import stage


class DiffScreen(Screen[None]):
    """Over the editor."""

    HEADING = "what differs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "up", tooltip="A line up", id="up"),
        Binding("down,j", "scroll(1)", "down", tooltip="A line down", id="down"),
        *PAGING,
        Binding("escape,backspace,q,d", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, page: DiffPage) -> None:
        super().__init__()
        self._page, self._top = page, 0

    def compose(self) -> ComposeResult:
        for name in ("title", "body", "keys"):
            yield Canvas(stage(self).look, id=name)

    def on_mount(self) -> None:
        self.query_one("#title", Canvas).show(lambda frame: diff_title(frame, self._page))
        self._draw()
        stage(self).draw_keys()

    def action_scroll(self, by: int) -> None:
        self._top += by
        self._draw()

    def _draw(self) -> None:
        self.query_one("#body", Canvas).show(self._lines)

    def _lines(self, frame: Frame) -> list[Line]:
        lines = diff_lines(frame, self._page)
        self._top = max(0, min(self._top, len(lines) - frame.height))
        return lines[self._top :]
