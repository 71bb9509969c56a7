"""Choosing one of several: a list that is narrowed while typing, and where anything may be typed, what was typed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from ftui.text import shown

from ..drawing.editor.form_pick import Choice, PickPage, pick_details, pick_lines, pick_title
from ..render.canvas import Canvas
from ..stage import stage
from .canvas_screen import ListScreen

PAGE = 10
Facts = Callable[[Choice], tuple[str, ...]]


class PickScreen(ListScreen[Choice | None]):
    """Gives the choice, `None` where there was none.

    `takes_any`: what is typed is a choice too. `facts` tells more of a choice, once it is under the cursor. `toggle` is
    for lists of which several are chosen: enter hands it the one under the cursor and shows the choices it returns, and
    nothing but leaving closes the list.
    """

    HEADING = "a list to choose from"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose", tooltip="Take the one under the cursor", id="choose"),
        Binding("up", "move(-1)", "up", show=False, tooltip="A line up", id="up"),
        Binding("down", "move(1)", "down", show=False, tooltip="A line down", id="down"),
        Binding("pageup", f"move(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} lines up", id="page-up"),
        Binding("pagedown", f"move({PAGE})", "page down", show=False, tooltip=f"{PAGE} lines down", id="page-down"),
        Binding("tab", "complete", "complete", show=False, tooltip="Type the one under the cursor", id="complete"),
        Binding("escape", "dismiss(None)", "back", key_display="esc", tooltip="Choose nothing", id="back"),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        text: str = "",
        takes_any: bool = False,
        facts: Facts | None = None,
        hint: str = "",
        toggle: Callable[[Choice], Sequence[Choice]] | None = None,
    ) -> None:
        super().__init__()
        self._title, self._choices, self._text, self._takes_any = title, list(choices), text, takes_any
        self._facts, self._hint, self._toggle = facts, hint, toggle
        self._known: dict[str, tuple[str, ...]] = {}
        self._typed = ""
        self.cursor = next((n for n, choice in enumerate(choices) if choice.is_current), 0)

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="title")
        field = Input(shown(self._text), compact=True, select_on_focus=True, id="entry")
        field.cursor_blink = False  # 2 kB/s over the wire otherwise
        yield field
        for name in ("body", "details", "keys"):
            yield Canvas(look, id=name)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def line_ids(self) -> Sequence[object]:
        return range(len(self.choices))

    @property
    def choices(self) -> list[Choice]:
        """What there is for what is typed."""
        words = self._typed.casefold().split()
        matches = [c for c in self._choices if all(word in f"{c.name} {c.words}".casefold() for word in words)]
        is_one = any(choice.name == self._typed for choice in matches)
        if not self._takes_any or not self._typed or is_one:
            return matches
        return [Choice(self._typed, "as it is typed", self._typed), *matches]

    def type_ahead(self, character: str) -> None:
        """Take a key that was pressed before the line of input could have it."""
        self.call_later(lambda: self.query_one(Input).insert_text_at_cursor(character))

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value == self._text and not self._typed:
            return  # what stood there when it was opened narrows nothing
        self._typed, self._text = event.value.strip(), ""
        self.cursor = 0
        if self._takes_any and "/" not in self._typed and len(self.choices) > 1 and self._typed:
            self.cursor = 1  # a word is rather a search than a name
        self.draw()

    def on_input_submitted(self) -> None:
        self.action_choose()

    def action_complete(self) -> None:
        if self._toggle is not None:
            self.dismiss(None)
        elif chosen := self._chosen():
            self.query_one(Input).value = shown(chosen.name)
            self.query_one(Input).action_end()

    def _chosen(self) -> Choice | None:
        choices = self.choices
        return choices[self.cursor] if self.cursor < len(choices) else None

    def action_choose(self) -> None:
        chosen = self._chosen()
        if chosen is None:
            return
        if self._toggle is not None:
            self._choices = list(self._toggle(chosen))
            self.draw()
        else:
            self.dismiss(chosen)

    def learn(self, value: str, words: str, facts: tuple[str, ...], tone: str) -> None:
        """More is known of a choice now than when the list was made."""
        self._known[value] = facts
        self._choices = [
            replace(choice, words=words, tone=tone) if choice.value == value else choice for choice in self._choices
        ]
        self.draw()

    def draw(self) -> None:
        choices = self.choices
        self.cursor = max(0, min(self.cursor, len(choices) - 1))
        if choices and (more := self._facts_of(choices[self.cursor])):
            choices[self.cursor] = replace(choices[self.cursor], facts=more)
        total, hint = len(self._choices), self._hint
        page = PickPage(self._title, choices, self.cursor, self._typed, self._takes_any, total, hint)
        self.show(
            title=lambda frame: pick_title(frame, page),
            body=lambda frame: pick_lines(frame, page),
            details=lambda frame: pick_details(frame, page),
        )

    def _facts_of(self, choice: Choice) -> tuple[str, ...]:
        if self._facts is None:
            return ()
        name = str(choice.value)
        if name not in self._known:
            self._known[name] = self._facts(choice)
        return self._known[name]


def pick(screen: Screen[Any], choices: PickScreen, then: Callable[[Choice], object]) -> None:
    """Opens the list over `screen`; `then` gets what is chosen, if anything is."""

    def on_choice(choice: Choice | None) -> None:
        if choice is not None:
            then(choice)

    screen.app.push_screen(choices, on_choice)
