"""All keys of a screen, made from its bindings."""

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..key_table import PAGING, bindings_of, keys_of, written
from ..render.canvas import Canvas
from ..render.spans import Frame, Line, spread, wrapped
from ..stage import stage

Entry = tuple[str, str, str]
"""The keys, a word for what they do, and a sentence."""


class HelpScreen(Screen[None]):
    """Over the screen it explains; what the signs of that one mean, its `LEGEND` says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "up", show=False, tooltip="A line up", id="up"),
        Binding("down,j", "scroll(1)", "down", show=False, tooltip="A line down", id="down"),
        *PAGING,
        Binding("escape,q,question_mark,f1", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, explained: Screen[Any]) -> None:
        super().__init__()
        self._entries = merged([(written(b), b.description, b.tooltip) for b in bindings_of(explained)])
        self._legend: Mapping[str, str] = getattr(explained, "LEGEND", {})
        self._heading = str(getattr(explained, "HEADING", "ftui"))
        self._top = 0

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="body")
        yield Canvas(look, id="keys")

    def on_mount(self) -> None:
        self._draw()
        keys_of(self)

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._top + by)
        self._draw()

    def _draw(self) -> None:
        self.query_one("#body", Canvas).show(self._lines)

    def _lines(self, frame: Frame) -> list[Line]:
        lines = help_lines(frame, self._entries, self._legend)
        room = frame.height - 2
        self._top = max(0, min(self._top, len(lines) - room))
        below = len(lines) - room - self._top
        more = f"{below} more line{'s' if below > 1 else ''} below " if below > 0 else ""
        return [
            spread(frame.width, [(f" keys of {self._heading}", "title")], [(more, "faint")]),
            [],
            *lines[self._top :],
        ]


def merged(entries: list[Entry]) -> list[Entry]:
    """A key that has another word for it on another page of the screen is told once."""
    found: dict[tuple[str, str], Entry] = {}
    for key, word, explanation in entries:
        found.setdefault((key, explanation), (key, word, explanation))
    return list(found.values())


def help_lines(frame: Frame, entries: list[Entry], legend: Mapping[str, str]) -> list[Line]:
    """Each key with what it does; below them what the signs mean."""
    lines: list[Line] = []
    width = max((len(key) for key, _, _ in entries), default=0)
    words = max((len(word) for _, word, _ in entries), default=0)
    for key, word, explanation in entries:
        first, *rest = wrapped(explanation, max(10, frame.width - width - words - 7)) or [""]
        lines.append([(f"  {key:<{width}}", "key"), (f"  {word:<{words}}", "text"), (f"  {first}", "muted")])
        lines += [[(" " * (width + words + 6) + line, "muted")] for line in rest]
    lines += [[], [("  ctrl+p", "key"), ("  finds runs, checkpoints, profiles and everything above by name", "muted")]]
    signs = vars(frame.glyphs)
    for label, text in legend.items():
        first, *rest = wrapped(text.format(**signs), frame.width - 16)
        lines.append([(f"  {label:<10}  ", "text"), (first, "muted")])
        lines += [[(" " * 14 + line, "muted")] for line in rest]
    return lines
