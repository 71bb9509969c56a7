"""A question before something that cannot be undone, a line of input, and what does not fit into one line."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widgets import Input

from ftui.errors import FtuiError
from ftui.text import shown

from ..render.canvas import Canvas
from ..render.spans import Frame, Line, paragraph
from ..render.textual_patch import OnePaintScreen
from ..stage import stage

T = TypeVar("T")
DIALOG_WIDTH = 70
TEXT = "text@panel"
BLANK: Line = [("", TEXT)]


class DialogScreen(OnePaintScreen[ScreenResultType], ModalScreen[ScreenResultType]):
    """A few lines in the middle, over the screen below."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Canvas(stage(self).look, id="question")

    def on_mount(self) -> None:
        canvas = self.query_one("#question", Canvas)
        canvas.styles.height = len(self.question_lines(DIALOG_WIDTH))
        canvas.show(lambda frame: self.question_lines(frame.width))

    def question_lines(self, width: int) -> list[Line]:
        """What stands in the dialog, in lines of at most that many columns."""
        raise NotImplementedError


class ConfirmScreen(DialogScreen[bool]):
    """Yes or no. `question` may be long; `yes` and `no` say what y and n do.

    Esc and Enter are no answer (`None`); `later` says what that means where it is not the same as no.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", id="yes"),
        Binding("n", "answer(False)", "no", id="no"),
        Binding("escape,q,enter", "dismiss(None)", "no answer", id="later"),  # Enter is pressed without reading
    ]

    def __init__(self, question: str, yes: str, *, no: str = "no", later: str = "") -> None:
        super().__init__()
        self._question = question
        self._keys = [("y", yes), ("n", no), *([("esc", later)] if later else [])]

    def question_lines(self, width: int) -> list[Line]:
        keys: Line = []
        for key, words in self._keys:
            keys += [("   " if keys else "", "muted@panel"), (key, "key@panel"), (f" {words}", "muted@panel")]
        return [*paragraph(self._question, width, TEXT), BLANK, [(" ", "key@panel"), *keys]]

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class MessageScreen(DialogScreen[None]):
    """A message that is too long for one line, until it has been read.

    An empty `message`: nothing is wrong, and the hint is the answer.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,escape,q,space", "dismiss", "close", id="close")]

    def __init__(self, message: str, hint: str) -> None:
        super().__init__()
        self._message, self._hint = message, hint

    def question_lines(self, width: int) -> list[Line]:
        lines = paragraph(self._message, width, "bad@panel") if self._message else []
        lines += paragraph(self._hint, width, TEXT) if self._hint else []
        return [*lines, BLANK, [(" enter", "key@panel"), (" close", "muted@panel")]]


class PromptScreen(DialogScreen[Any]):
    """One line of text; gives what `check` makes of it, `None` after Esc.

    `check` raises an FtuiError for what cannot be taken, shown while it is typed. `replaced`: the first key typed takes
    the place of `text`, else it goes behind it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "cancel", id="cancel")]

    def __init__(
        self,
        question: str,
        text: str,
        check: Callable[[str], object],
        *,
        enter: str = "take it",
        replaced: bool = False,
    ) -> None:
        super().__init__()
        self._question, self._text, self._check, self._enter = question, text, check, enter
        self._replaced = replaced

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Canvas(stage(self).look, id="question")
            field = Input(shown(self._text), compact=True, select_on_focus=False)
            field.cursor_blink = False  # 2 kB/s over the wire otherwise
            yield field
            yield Canvas(stage(self).look, id="problem")

    def on_mount(self) -> None:
        self.query_one("#problem", Canvas).styles.height = 3
        field = self.query_one(Input)
        if self._replaced:  # here, not on focus: that may come after a key that was typed ahead
            field.action_select_all()
        else:
            field.action_end()
        self._show_problem("")

    def question_lines(self, width: int) -> list[Line]:
        return [*paragraph(self._question, width, TEXT), BLANK]

    def _show_problem(self, problem: str) -> None:
        def paint(frame: Frame) -> list[Line]:
            keys: Line = [(" enter", "key@panel"), (f" {self._enter}   ", "muted@panel")]
            keys += [("esc", "key@panel"), (" cancel", "muted@panel")]
            return [*paragraph(problem, frame.width, "bad@panel")[:2], keys] if problem else [BLANK, keys, BLANK]

        self.query_one("#problem", Canvas).show(paint)

    def type_ahead(self, character: str) -> None:
        """Take a key that was pressed before the field could have it."""

        def take() -> None:
            field = self.query_one(Input)
            field.replace(character, *field.selection)

        self.call_later(take)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != shown(self._text):  # what stands there at first is nobody's fault
            self._check_text(event.value, lambda _: self._show_problem(""))
        else:
            self._show_problem("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._check_text(event.value, self.dismiss)

    def _check_text(self, text: str, then: Callable[[Any], object]) -> None:
        try:
            answer = self._check(text)
        except FtuiError as error:
            self._show_problem(f"{error.message} {error.hint}".strip())
        else:
            then(answer)


def confirm(screen: Screen[Any], question: str, yes: str, then: Callable[[], object]) -> None:
    """Asks over `screen`, and goes on with `then` after a yes. `yes`: what that does."""

    def on_answer(answer: bool | None) -> None:
        if answer:
            then()

    screen.app.push_screen(ConfirmScreen(question, yes), on_answer)


def prompt(
    screen: Screen[Any],
    question: str,
    text: str,
    check: Callable[[str], T],
    then: Callable[[T], object],
    *,
    enter: str = "take it",
    replaced: bool = False,
) -> None:
    """Asks for a line of text over `screen`; `then` gets what `check` makes of it. See `PromptScreen`."""

    def on_answer(answer: T | None) -> None:
        if answer is not None:
            then(answer)

    screen.app.push_screen(PromptScreen(question, text, check, enter=enter, replaced=replaced), on_answer)
