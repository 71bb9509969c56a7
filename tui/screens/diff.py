"""What differs between the draft and something else, to be read up and down."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ..drawing.editor.form_diff import DiffPage, diff_lines, diff_title
from ..key_table import SCROLL_KEYS
from ..render.spans import Frame, Line
from .canvas_screen import TextScreen


class DiffScreen(TextScreen):
    """Over the editor."""

    HEADING = "what differs"
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS,
        Binding("escape,backspace,q,d", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    CANVASES: ClassVar[Sequence[str]] = ("title", "body")

    def __init__(self, page: DiffPage) -> None:
        super().__init__()
        self._page = page

    def on_mount(self) -> None:
        self.show(title=lambda frame: diff_title(frame, self._page))

    def text_lines(self, frame: Frame) -> list[Line]:
        return diff_lines(frame, self._page)
