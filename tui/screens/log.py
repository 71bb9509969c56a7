"""All that a run's engine printed, to scroll through; it follows the end until somebody scrolls up."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.runs.run_folder import Run

from ..key_table import BACK, ENDS, SCROLL_KEYS
from ..render.spans import Frame, Line, spread
from ..state.tails import LogTail
from .canvas_screen import TextScreen


class LogScreen(TextScreen):
    """The newest lines of engine.log (`ftui log RUN --output` prints them all)."""

    HEADING = "a log"
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS[:-1],
        Binding("end,G", f"scroll({ENDS})", "end", key_display="end", tooltip="The newest line; follow it", id="end"),
        BACK,
    ]
    refresh_seconds = 0.5

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._tail = LogTail(run)
        self._up = 0  # lines between the last one shown and the newest

    def on_mount(self) -> None:
        self.tick()

    def tick(self) -> None:
        while self._tail.look():
            continue
        self.draw()

    def action_scroll(self, by: int) -> None:
        self._up = max(0, min(self._up - by, len(self._tail.lines) - 1))
        self.draw()

    def visible_lines(self, frame: Frame) -> list[Line]:
        lines = list(self._tail.lines)
        end = max(min(len(lines), frame.height - 1), len(lines) - self._up)
        where = "the end" if end == len(lines) else f"line {end:,} of {len(lines):,}"
        head = spread(
            frame.width, [(f" {self._run.name} ", "title"), ("engine.log", "muted")], [(f"{where} ", "faint")]
        )
        if not lines:
            return [head, [(" No output yet.", "muted")]]
        return [head, *([(" ", "text"), (line, "text")] for line in lines[max(0, end - frame.height + 1) : end])]
