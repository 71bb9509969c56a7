"""All that is known about one key, to be scrolled where the form has no room for it."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from ...drawing.editor.form import details
from ...form.form_rows import FormRow
from ...key_table import SCROLL_KEYS
from ...render.spans import Frame, Line
from ..canvas_screen import TextScreen

MOST_LINES = 500


class InfoScreen(TextScreen):
    """The help of one key, over the editor."""

    HEADING = "the help of one key"
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS,
        Binding("escape,enter,backspace,q,i", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, row: FormRow) -> None:
        super().__init__()
        self._row = row

    def text_lines(self, frame: Frame) -> list[Line]:
        return details(Frame(frame.width, MOST_LINES, frame.glyphs), self._row)[1:]
