"""Leaving the editor, and ftui out of it: nothing that was not saved is lost without a question."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from ...render.canvas import Canvas
from ...render.spans import Line, wrapped
from ...render.theme import Look
from ...stage import stage
from ...state import autosave
from ..ask import DIALOG_WIDTH, AskScreen
from . import file_actions

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

Answer = Literal["save", "drop", "stay"]
KEPT_QUESTION = "ftui was ended while this profile had changes that were not saved. Take them up again?"


class LeaveScreen(ModalScreen[Answer]):
    """What becomes of changes that are not saved."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s,enter", "answer('save')", "save and leave", id="save"),
        Binding("y", "answer('drop')", "leave without them", id="drop"),
        Binding("n,escape,q", "answer('stay')", "stay", id="stay"),
    ]

    def __init__(self, look: Look, question: str) -> None:
        super().__init__()
        self._look, self._question = look, question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Canvas(self._look, id="question")

    def on_mount(self) -> None:
        canvas = self.query_one(Canvas)
        canvas.styles.height = len(self._lines(DIALOG_WIDTH))
        canvas.show(lambda frame: self._lines(frame.width))

    def _lines(self, width: int) -> list[Line]:
        text: list[Line] = [[(" " + line, "text@panel")] for line in wrapped(self._question, width - 2)]
        keys: Line = []
        for key, words in (("s", "save and leave"), ("y", "leave without them"), ("n", "stay")):
            keys += [(f" {key}", "key@panel"), (f" {words}  ", "muted@panel")]
        return [*text, [("", "text@panel")], keys]

    def action_answer(self, answer: Answer) -> None:
        self.dismiss(answer)


def leave(screen: "EditorScreen", then: Callable[[], object] | None = None) -> None:
    """Back (or `then`, such as out of ftui); asks where something would be lost."""
    go: Callable[[], object] = then or screen.app.pop_screen
    editing = screen.editing

    def out() -> None:
        screen.keeping.end()
        go()

    def answered(answer: Answer | None) -> None:
        if answer == "drop":
            out()
        elif answer == "save":
            file_actions.save(screen, out)

    if not editing.would_lose:
        out()
        return
    question = f"{editing.path.name} has changes that are not saved."
    screen.app.push_screen(LeaveScreen(stage(screen).look, question), answered)


def ask_before_leaving(screen: "EditorScreen", then: Callable[[], object]) -> bool:
    """Whether it asks: before ftui is left with something unsaved; `then` leaves it."""
    if not screen.editing.would_lose:
        return False
    while screen.app.screen is not screen:  # its own lists and questions go first
        screen.app.pop_screen()
    screen.accepted()
    leave(screen, then)
    return True


def offer_kept(screen: "EditorScreen") -> None:
    """What was not saved when ftui was ended from outside, as one step that u takes back."""
    editing = screen.editing
    found = autosave.kept(editing.path)
    if found is None:
        return
    if found.text == editing.draft.text:
        found.forget()
        return

    def answered(yes: bool | None) -> None:
        if yes:
            screen.take(editing.draft.to(found.text))
            screen.keep_draft()
        if yes is not None:  # no answer: it is asked again the next time
            found.forget()

    question = AskScreen(stage(screen).look, KEPT_QUESTION, "take them up", no="drop them", later="not now")
    screen.app.push_screen(question, answered)
