"""All that is known about one key, to be scrolled where the form has no room for it."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ...drawing.editor.form import details
from ...form.form_rows import FormRow
from ...key_table import PAGING
from ...render.canvas import Canvas
from ...render.spans import Frame, Line
from ...stage import stage

MOST_LINES = 500


class InfoScreen(Screen[None]):
    """The help of one key, over the editor."""

    HEADING = "the help of one key"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "up", tooltip="A line up", id="up"),
        Binding("down,j", "scroll(1)", "down", tooltip="A line down", id="down"),
        *PAGING,
        Binding("escape,enter,backspace,q,i", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, row: FormRow) -> None:
        super().__init__()
        self._row, self._top = row, 0

    def compose(self) -> ComposeResult:
        for name in ("body", "keys"):
            yield Canvas(stage(self).look, id=name)

    def on_mount(self) -> None:
        self.query_one("#body", Canvas).show(self._lines)
        stage(self).draw_keys()

    def action_scroll(self, by: int) -> None:
        self._top += by
        self.query_one("#body", Canvas).show(self._lines)

    def _lines(self, frame: Frame) -> list[Line]:
        lines = details(Frame(frame.width, MOST_LINES, frame.glyphs), self._row)[1:]
        self._top = max(0, min(self._top, len(lines) - frame.height))
        return lines[self._top :]
