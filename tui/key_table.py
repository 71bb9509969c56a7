"""Keys from one table: the bindings of a screen are its footer, its help and its commands in the palette."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from textual.binding import Binding, BindingType
from textual.screen import Screen

from .drawing.footer import Key, key_line
from .render.canvas import Canvas

LAST = ("help", "leave", "back")
"""Bindings (by id) that stand last in the footer and always stay."""

PAGE = 15  # lines; of the 21 that a page of text has in 24
PAGING: list[BindingType] = [
    Binding("pageup", f"scroll(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} lines up", id="page-up"),
    Binding("pagedown,space", f"scroll({PAGE})", "page down", show=False, tooltip=f"{PAGE} lines down", id="page-down"),
    Binding("home,g", "scroll(-1000000)", "first", show=False, tooltip="The first line", id="first"),
    Binding("end,G", "scroll(1000000)", "last", show=False, tooltip="The last line", id="last"),
]
"""Of a screen whose text is read up and down (`action_scroll`), beside its keys for one line."""

NAMES = {
    "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]", "escape": "esc", "enter": "enter",
    "space": "space", "left": "left", "right": "right", "up": "up", "down": "down", "pageup": "pgup",
    "pagedown": "pgdn", "home": "home", "end": "end", "backspace": "backspace", "plus": "+", "minus": "-",
    "equals_sign": "=", "slash": "/", "less_than_sign": "<", "greater_than_sign": ">",
}  # fmt: skip


def bindings_of(screen: Screen[Any]) -> list[Binding]:
    """The screen's own bindings, then those of the application."""
    return [*_bindings(type(screen).BINDINGS), *_bindings(type(screen.app).BINDINGS)]


def _bindings(found: Iterable[BindingType]) -> Iterator[Binding]:
    return (binding for binding in found if isinstance(binding, Binding))


def written(binding: Binding) -> str:
    """A binding's keys as people write them."""
    if binding.key_display:
        return binding.key_display
    return " ".join(NAMES.get(key.strip(), key.strip()) for key in binding.key.split(","))


def keys_of(screen: Screen[Any], said: str = "", tone: str = "text") -> None:
    """Draw the screen's last line: its keys but those that mean nothing now (`hidden_keys`), or what was said."""
    hidden: Collection[str] = getattr(screen, "hidden_keys", ())
    found = footer(binding for binding in bindings_of(screen) if binding.id not in hidden)
    for canvas in screen.query("#keys").results(Canvas):
        canvas.show(lambda frame: key_line(frame, found, said, tone))


def footer(bindings: Iterable[Binding]) -> list[Key]:
    """The bindings to show, those that always stay at the end."""
    shown = [binding for binding in bindings if binding.show]
    ordered = sorted(shown, key=lambda binding: binding.id in LAST)
    return [(written(binding), binding.description) for binding in ordered]
