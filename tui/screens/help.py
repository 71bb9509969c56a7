"""All keys of a screen, made from its bindings."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import asdict
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..key_table import SCROLL_KEYS, bindings_of, write_keys
from ..render.spans import Frame, Line, labelled, spread
from .canvas_screen import TextScreen

Entry = tuple[str, str, str]
"""The keys, a word for what they do, and a sentence."""


class HelpScreen(TextScreen):
    """Over the screen it explains; what the signs of that one mean, its `LEGEND` says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS,
        Binding("escape,q,question_mark,f1", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back"),
    ]

    def __init__(self, explained: Screen[Any]) -> None:
        super().__init__()
        self._entries = merge_entries([(write_keys(b), b.description, b.tooltip) for b in bindings_of(explained)])
        self._legend: Mapping[str, str] = getattr(explained, "LEGEND", {})
        self._heading = str(getattr(explained, "HEADING", "ftui"))

    def visible_lines(self, frame: Frame) -> list[Line]:
        lines = help_lines(frame, self._entries, self._legend)
        height = frame.height - 2
        self.top = max(0, min(self.top, len(lines) - height))
        below = len(lines) - height - self.top
        more = f"{below} more line{'s' if below > 1 else ''} below " if below > 0 else ""
        title: Line = [(f" keys of {self._heading}", "title")]
        return [spread(frame.width, title, [(more, "faint")]), [], *lines[self.top :]]


def merge_entries(entries: list[Entry]) -> list[Entry]:
    """Each key once, also where another page of the screen has another word for it."""
    merged: dict[tuple[str, str], Entry] = {}
    for key, word, explanation in entries:
        merged.setdefault((key, explanation), (key, word, explanation))
    return list(merged.values())


def help_lines(frame: Frame, entries: list[Entry], legend: Mapping[str, str]) -> list[Line]:
    """Each key with what it does; below them what the signs mean."""
    lines: list[Line] = []
    width = max((len(key) for key, _, _ in entries), default=0)
    words = max((len(word) for _, word, _ in entries), default=0)
    for key, word, explanation in entries:
        head: Line = [(f"  {key:<{width}}", "key"), (f"  {word:<{words}}  ", "text")]
        lines += labelled(head, explanation, frame.width, "muted")
    lines += [[], [("  ctrl+p", "key"), ("  finds runs, checkpoints, profiles and everything above by name", "muted")]]
    signs = asdict(frame.glyphs)
    for label, text in legend.items():
        lines += labelled([(f"  {label:<10}  ", "text")], text.format(**signs), frame.width - 1, "muted")
    return lines
