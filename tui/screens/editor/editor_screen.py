"""The form editor: every key of a profile with value, origin and faults, the text and an estimate beside it.

This module loads pydantic: other screens import it only when the editor opens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from ftui.errors import FtuiError, UsageError

from ...drawing.editor.form_pick import Choice
from ...drawing.wording import place
from ...form.comparison import compare, list_comparisons
from ...form.profile_form import ProfileForm
from ...key_table import bindings_of
from ...stage import stage
from ...state import autosave
from ...state.profile_paths import current_folder, free_name, is_shipped
from ..canvas_screen import SplitScreen
from ..dialogs import prompt
from ..diff import DiffScreen
from ..pick import PickScreen, pick
from ..rows.rows_screen import open_rows
from .entry_line import EntryLine
from .estimate_panel import EstimatePanel
from .form_view import FormView, View
from .key_info import InfoScreen
from .profile_file import ProfileFile, check_path
from .value_editor import ValueEditor

PAGE = 10
VISIBLE_KEYS = {"typing": {"edit", "back"}, "finding": {"go", "back"}}
"""By their ids: those that stand in the footer while something is typed."""
TYPING_ACTIONS = ("edit", "leave", "move")
"""What a key still does then; every other key came before the line of input had the focus, and is typed."""

UNSET = "Unset the key: it falls back to the tier or the default"
EDITOR_KEYS: list[BindingType] = [
    Binding("enter", "edit", "edit", tooltip="Change the value; choose from a list; open a table", id="edit"),
    Binding("enter", "edit", "go", tooltip="While finding: go to the key", id="go"),
    Binding("slash", "find", "find", key_display="/", tooltip="Find a key by its name or its help", id="find"),
    Binding("w", "open('save')", "save", tooltip="Write the file; comments and order stay", id="save"),
    Binding("s", "open('start')", "start", tooltip="Save it and see what would be started", id="start"),
    Binding("r", "open('rows')", "rows", tooltip="The rows as the model sees them, and what is wrong", id="rows"),
    Binding("t", "open('tier')", "tier", tooltip="The card to estimate for, and its tier below the profile", id="tier"),
    Binding("f", "open('fit')", "fit", tooltip="What would make it fit the card, or use it better", id="fit"),
    Binding("u,ctrl+z", "step(-1)", "undo", key_display="u", tooltip="Take the last change back", id="undo"),
    Binding("U,ctrl+y", "step(1)", "redo", key_display="U", show=False, tooltip="Do it again", id="redo"),
    Binding("v", "view('toml')", "text", tooltip="The profile's text; again: the form", id="text"),
    Binding("b", "view('estimate')", "memory", tooltip="Where the memory goes; again: the form", id="memory"),
    Binding("x,delete", "clear", "unset", key_display="x", tooltip=UNSET, id="unset"),
    Binding("d", "open('compare')", "diff", tooltip="What differs from the file, a tier or another profile", id="diff"),
    Binding("i", "open('help')", "key's help", show=False, tooltip="All that is known about this key", id="key-help"),
    Binding("a", "open('add')", "add", show=False, tooltip="Add a source of rows to data.train or data.eval", id="add"),
    Binding("W", "open('save_as')", "save as", show=False, tooltip="Write it to another file", id="save-as"),
    Binding("c", "open('closer')", "closer", show=False, tooltip="Count the rows, simulate the model", id="closer"),
    Binding("E", "open('outside')", "editor", show=False, tooltip="Edit the text in $EDITOR", id="outside"),
    Binding("n", "next('fault')", "next error", show=False, tooltip="The next key with an error", id="fault"),
    Binding("m", "next('change')", "next change", show=False, tooltip="The next changed key", id="change"),
    Binding("space", "cycle(1)", "toggle", show=False, tooltip="Switch it; the next choice", id="toggle"),
    Binding("right,l", "cycle(1)", "next choice", show=False, tooltip="The next choice; open a table", id="right"),
    Binding("left,h", "cycle(-1)", "choice before", show=False, tooltip="The choice before; close a table", id="left"),
    Binding("right_square_bracket", "table(1)", "next table", show=False, tooltip="The next table", id="table"),
    Binding(
        "left_square_bracket", "table(-1)", "table before", show=False, tooltip="The table before", id="table-before"
    ),
    Binding("up,shift+tab", "move(-1)", "up", show=False, tooltip="A key up; takes what is typed", id="up"),
    Binding("down,tab", "move(1)", "down", show=False, tooltip="A key down; takes what is typed", id="down"),
    Binding("k", "go(-1)", "up", show=False, tooltip="A key up", id="k"),
    Binding("j", "go(1)", "down", show=False, tooltip="A key down", id="j"),
    Binding("pageup", f"move(-{PAGE})", "page up", show=False, tooltip=f"{PAGE} keys up", id="page-up"),
    Binding("pagedown", f"move({PAGE})", "page down", show=False, tooltip=f"{PAGE} keys down", id="page-down"),
    Binding("home", "move(-1000000)", "first", show=False, tooltip="The first key", id="first"),
    Binding("end", "move(1000000)", "last", show=False, tooltip="The last key", id="last"),
    Binding("escape", "leave", "back", key_display="esc", tooltip="Back; asks where something is not saved", id="back"),
    Binding("backspace,q", "go_back", "back", show=False, tooltip="The same", id="back-too"),
]

COPY_QUESTION = "A profile that comes with ftui stays as it is. The name of your copy, which w writes:"


class EditorScreen(SplitScreen):
    """Hands keys to the form and to the components, each of which has a state of its own."""

    HEADING = "the editor of a profile"
    AUTO_FOCUS = ""  # the line of input has the keys only while it is shown
    BINDINGS: ClassVar[list[BindingType]] = EDITOR_KEYS

    def __init__(self, form: ProfileForm) -> None:
        super().__init__()
        self.form = form
        self.entry = EntryLine(self, form, self.draw)
        self._estimate = EstimatePanel(self, form, self.draw)
        self._file = ProfileFile(self, form, self.draw)
        self._values = ValueEditor(self, form, self.draw)
        self.form_view = FormView(self, form, self.entry, self._estimate)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        entry = Input(compact=True, select_on_focus=False, id="entry")
        entry.cursor_blink = False  # 2 kB/s over the wire otherwise
        yield entry

    def on_mount(self) -> None:
        self.entry.input.display = False
        self.draw()
        stage(self).draw_keys()
        self.run_worker(self._estimate.detect(), group="machine")
        self._file.offer_unsaved()
        self.set_interval(autosave.KEEP_SECONDS, self.keep_draft)

    def on_unmount(self) -> None:
        self._file.release()
        self._estimate.close()

    def draw(self) -> None:
        """Draws everything anew."""
        self.form_view.draw()

    # -- what the application asks of a screen

    def ask_before_leaving(self, then: Callable[[], object]) -> bool:
        """Whether it asks: before ftui is left with something unsaved; `then` leaves it."""
        if not self.form.has_unsaved_work:
            return False
        while self.app.screen is not self:  # its own lists and questions go first
            self.app.pop_screen()
        self.entry.accept()
        self._file.leave(then)
        return True

    def keep_draft(self) -> None:
        """Keeps a copy of what is not saved."""
        self._file.keep_draft()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self.entry.mode or action in TYPING_ACTIONS or not hasattr(self, f"action_{action}")

    def type_ahead(self, character: str) -> None:
        """Takes a key that came before the line of input had the focus: `/x` must not unset a key."""
        if self.entry.mode:
            self.entry.input.insert_text_at_cursor(character)

    @property
    def hidden_keys(self) -> set[str]:
        """Keys that mean nothing while something is typed."""
        if not self.entry.mode:
            return {"go"}
        return {binding.id for binding in bindings_of(self) if binding.id} - VISIBLE_KEYS[self.entry.mode]

    # -- moving

    def action_go(self, by: int) -> None:
        self.action_move(by)

    def action_move(self, by: int) -> None:
        if self.entry.accept():
            if not self.form_view.scroll(by):
                self.form.move(by)
            self.draw()

    def action_table(self, by: int) -> None:
        self.form.move_to_table(by)
        self.draw()

    def action_next(self, what: Literal["fault", "change"]) -> None:
        if not self.form.move_to_next(what):
            fault = next(iter(self.form.snapshot.faults), None)
            if what == "change":
                stage(self).say("Nothing differs from the file.")
            elif fault is None:
                stage(self).say("Nothing is wrong.")
            else:
                stage(self).note(f"{'.'.join(fault.key)}: {fault.message}. {fault.fix}")
        self.draw()

    def action_find(self) -> None:
        self.entry.start_finding()

    # -- changing

    def action_edit(self) -> None:
        row = self.form.row
        if self.entry.mode:
            self.entry.submit()
        elif row is not None and row.kind == "unknown":
            self._values.rename(row)
        elif row is not None and row.field is not None and row.field.is_chosen:
            self._values.choose(row, row.field)
        elif row is not None and row.field is not None and row.field.kind == "switch":
            self._values.cycle(1)
        elif row is not None and not self.form.toggle():
            self.entry.start_typing()
        self.draw()

    def action_cycle(self, by: int) -> None:
        self._values.cycle(by)

    def action_clear(self) -> None:
        self._values.unset()

    def action_step(self, by: int) -> None:
        if not self.form.step_history(by):
            stage(self).say("Nothing to undo." if by < 0 else "Nothing to redo.")
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.entry.change(event.value)

    def on_input_submitted(self) -> None:
        self.entry.submit()

    # -- opening and leaving

    def action_open(self, what: str) -> None:
        {
            "tier": self._estimate.choose_card, "fit": self._estimate.choose_change,
            "closer": self._estimate.look_closer, "compare": self._compare, "help": self._show_help,
            "add": self._values.add, "rows": self._open_rows, "start": self._file.start,
            "save": self._file.save, "save_as": self._file.save_as, "outside": self._file.edit_outside,
        }[what]()  # fmt: skip

    def _open_rows(self) -> None:
        profile = self.form.snapshot.profile
        if profile is None:
            stage(self).say("The profile has errors: fix them first; n goes to the next.", "warn")
        else:
            open_rows(self, profile, self.form.path.name, self.draw)

    def _show_help(self) -> None:
        if self.form.row is not None:
            self.app.push_screen(InfoScreen(self.form.row))

    def _compare(self) -> None:
        def show(choice: Choice) -> None:
            try:
                self.app.push_screen(DiffScreen(compare(self.form, choice)))
            except FtuiError as error:
                stage(self).complain(error)

        choices = list_comparisons(self.form, self._estimate.cards.proposed)
        pick(self, PickScreen("what to compare this draft with", choices), show)

    def action_view(self, view: View) -> None:
        self.form_view.turn_to(view)

    def action_go_back(self) -> None:
        self.action_leave()

    def action_leave(self) -> None:
        if self.entry.mode:
            self.entry.cancel()
        elif self.form_view.view != "form":
            self.form_view.turn_to("form")
        else:
            self._file.leave()


def open_editor(screen: Screen[Any], path: Path) -> None:
    """Opens the editor over `screen`; on a profile that comes with ftui, on a copy, whose name is asked for first."""

    def show(load: Callable[[], ProfileForm]) -> None:
        try:
            form = load()
        except FtuiError as error:
            stage(screen).complain(error)
        else:
            screen.app.push_screen(EditorScreen(form))

    def check_new(text: str) -> Path:
        chosen = check_path(text)
        if chosen.exists():
            raise UsageError(f"There is a file {place(chosen)}.", hint="Give another name.")
        return chosen

    if not is_shipped(path):
        show(lambda: ProfileForm.load(path))
        return
    here = current_folder()
    name = free_name(here, path.stem).name if here is not None else str(free_name(Path.home(), path.stem))
    edit_copy = lambda copy: show(lambda: ProfileForm.copy(path, copy))  # noqa: E731
    prompt(screen, COPY_QUESTION, name, check_new, edit_copy, enter="edit it")
