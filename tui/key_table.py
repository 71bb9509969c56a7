"""Keys from one table: the bindings of a screen are its footer, its help and its commands in the palette."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from .render.canvas import Canvas
from .render.spans import Frame, Line, clipped, width_of

LAST = ("help", "leave", "back")
"""Bindings (by id) that stand last in the footer and always stay."""

ENDS = 1_000_000  # lines; more than any list or text has


def step_keys(action: str, thing: str = "line") -> list[BindingType]:
    """Keys that move by one thing, and to either end."""
    return [
        Binding("up,k", f"{action}(-1)", "up", show=False, tooltip=f"A {thing} up", id="up"),
        Binding("down,j", f"{action}(1)", "down", show=False, tooltip=f"A {thing} down", id="down"),
        Binding("home,g", f"{action}(-{ENDS})", "first", show=False, tooltip=f"The first {thing}", id="first"),
        Binding("end,G", f"{action}({ENDS})", "last", show=False, tooltip=f"The last {thing}", id="last"),
    ]


def page_keys(action: str, page: int, thing: str = "line") -> list[BindingType]:
    """Keys that move by `page` things."""
    up, down = f"{page} {thing}s up", f"{page} {thing}s down"
    return [
        Binding("pageup", f"{action}(-{page})", "page up", show=False, tooltip=up, id="page-up"),
        Binding("pagedown,space", f"{action}({page})", "page down", show=False, tooltip=down, id="page-down"),
    ]


CURSOR_KEYS = [*page_keys("move", 10), *step_keys("move")]
"""Of a `ListScreen`."""
SCROLL_KEYS = [*page_keys("scroll", 15), *step_keys("scroll")]
"""Of a `TextScreen`: 15 of the 21 lines of text that fit in 24."""
BACK = Binding("escape,backspace,q", "app.pop_screen", "back", key_display="esc", tooltip="Back", id="back")
LEAVE = Binding("escape,backspace,q", "leave", "back", key_display="esc", tooltip="Back", id="back")
"""Of a screen that may be the first one: a `CanvasScreen`."""

NAMES = {
    "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]", "escape": "esc", "pageup": "pgup",
    "pagedown": "pgdn", "plus": "+", "minus": "-", "equals_sign": "=", "slash": "/", "less_than_sign": "<",
    "greater_than_sign": ">",
}  # fmt: skip
"""Of keys that are written otherwise than Textual calls them."""

Key = tuple[str, str]
"""The key as it is written, and what it does in a word or two."""


Meaning = tuple[str, str]
"""What a key does now: the word for the footer, and a sentence."""


def bindings_of(screen: Screen[Any]) -> Sequence[Binding]:
    """The screen's own bindings, then those of the application, with what each key means now.

    A screen on which a key (by its id) does not always do the same says so in `key_meanings`.
    """
    meanings: Mapping[str, Meaning] = getattr(screen, "key_meanings", {})
    return _bindings_of(type(screen), type(screen.app), tuple(meanings.items()))


@cache  # the live view asks four times a second
def _bindings_of(
    screen: type[Screen[Any]], app: type[App[Any]], meanings: tuple[tuple[str, Meaning], ...]
) -> Sequence[Binding]:
    found, now = (*_bindings(screen.BINDINGS), *_bindings(app.BINDINGS)), dict(meanings)
    return [_with_meaning(binding, now.get(binding.id or "")) for binding in found]


def _with_meaning(binding: Binding, meaning: Meaning | None) -> Binding:
    return binding if meaning is None else replace(binding, description=meaning[0], tooltip=meaning[1])


def _bindings(found: Iterable[BindingType]) -> Iterator[Binding]:
    return (binding for binding in found if isinstance(binding, Binding))


def write_keys(binding: Binding) -> str:
    """A binding's keys as people write them."""
    if binding.key_display:
        return binding.key_display
    return " ".join(NAMES.get(key.strip(), key.strip()) for key in binding.key.split(","))


def draw_footer(screen: Screen[Any], message: str = "", tone: str = "text") -> None:
    """Draw the screen's last line: the message, or its keys but those that mean nothing now (`hidden_keys`)."""
    hidden: Collection[str] = getattr(screen, "hidden_keys", ())
    shown = [binding for binding in bindings_of(screen) if binding.show and binding.id not in hidden]
    ordered = sorted(shown, key=lambda binding: binding.id in LAST)
    takes_letters = any(field.display and not field.disabled for field in screen.query("Input"))  # and the ? with them
    keys = [
        ("f1" if takes_letters and binding.id == "help" else write_keys(binding), binding.description)
        for binding in ordered
    ]
    for canvas in screen.query("#keys").results(Canvas):
        canvas.show(lambda frame: key_line(frame, keys, message, tone))


def key_line(frame: Frame, keys: Sequence[Key], message: str = "", tone: str = "text") -> list[Line]:
    """The message, or the keys, most important first. Where it is narrow, the last go, but for the very last two."""
    if message:
        return [clipped([(" ", "text"), (message, tone)], frame.width)]
    shown = list(keys)
    while len(shown) > 2 and _width(shown) > frame.width - 1:
        shown.pop(-3)
    line: Line = [(" ", "text")]
    for key, words in shown:
        line += [(key, "key"), (f" {words}  ", "muted")]
    return [line]


def _width(keys: Sequence[Key]) -> int:
    return sum(width_of([(key, ""), (words, "")]) + 3 for key, words in keys)
