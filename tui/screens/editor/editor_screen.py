"""The form editor: every key of a profile with its value, where it comes from and what is wrong, the text beside it.

This room loads pydantic: other screens import it when it is about to be shown.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Input

from ftui.errors import FtuiError
from ftui.estimate.api import Known
from ftui.hardware.devices import Card
from ftui.helper.client import Helper
from ftui.profile.origins import Key
from ftui.profile.toml_edit.document import Draft
from ftui.text import shown

from ...drawing.editor.form_estimate import Forecast
from ...form.editor import Editing
from ...form.estimates import Place, look_around
from ...form.text_values import NONE
from ...key_table import bindings_of
from ...render.canvas import Canvas
from ...stage import stage
from ...state import autosave
from . import choices, leave
from .editor_bindings import EDITOR_KEYS, TYPING_ACTIONS, hidden
from .editor_views import Shown
from .notices import nothing, problem_with, tell_what_went
from .parts import ROOMS

View = Literal["form", "toml", "estimate"]


class EditorScreen(Screen[None]):
    """`editing`: what is edited. Its lists and its files are other rooms (editor_choices, editor_files)."""

    HEADING = "the editor of a profile"
    AUTO_FOCUS = ""  # the line of input has the keys only while it is shown
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-beside")]  # noqa: RUF012 (Textual declares it so)
    BINDINGS: ClassVar[list[BindingType]] = EDITOR_KEYS

    def __init__(self, editing: Editing) -> None:
        super().__init__()
        self.editing = editing
        self.place = Place()
        self.card: Card | None = None
        self.forecast = Forecast(None, None)
        self.known: tuple[object, Known] | None = None  # what the helper process found, and of which profile and card
        self.keeping = autosave.Keeping()
        self.helper: Helper | None = None  # at work for a closer estimate
        self.mode: Literal["", "typing", "finding"] = ""
        self.view: View = "form"
        self._opened_with = ""
        self._found_from: Key = ()
        self.problem = ""  # with what is being typed
        self._shown = Shown(self)

    def compose(self) -> ComposeResult:
        look = stage(self).look
        yield Canvas(look, id="title")
        with Horizontal(id="middle"):
            with Vertical(id="form"):
                yield Canvas(look, id="body")
                yield Canvas(look, id="details")
            yield Canvas(look, id="aside")
        yield Canvas(look, id="keys")
        entry = Input(compact=True, select_on_focus=False, id="entry")
        entry.cursor_blink = False  # 2 kB/s over the wire otherwise
        yield entry

    def on_mount(self) -> None:
        self.entry.display = False
        self.draw()
        stage(self).draw_keys()
        self.run_worker(self._look_around(), group="machine")
        leave.offer_kept(self)
        self.set_interval(autosave.KEEP_SECONDS, self.keep_draft)

    def ask_before_leaving(self, then: Callable[[], object]) -> bool:
        """Whether it asks: before ftui is left with something unsaved; `then` leaves it."""
        return leave.ask_before_leaving(self, then)

    def keep_draft(self) -> None:
        """Put away what is not saved: ftui may be ended from outside at any time."""
        self.keeping.look(self.editing.path, self.editing.text if self.editing.would_lose else None)

    def on_unmount(self) -> None:
        self.keeping.release()
        if self.helper is not None:
            self.helper.close()  # whoever waits for its answer waits no more

    def on_screen_resume(self) -> None:
        stage(self).draw_keys()

    async def _look_around(self) -> None:
        self.place = await asyncio.to_thread(look_around)
        choices.put_on_tier(self)
        self.draw()

    @property
    def entry(self) -> Input:
        return self.query_one("#entry", Input)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self.mode or action in TYPING_ACTIONS or not hasattr(self, f"action_{action}")

    def type_ahead(self, character: str) -> None:
        """Take a key that was pressed before the line of input could have it: `/x` must not take a key out."""
        if self.mode:
            self.entry.insert_text_at_cursor(character)

    # -- moving and finding

    def action_go(self, by: int) -> None:
        self.action_move(by)

    def action_move(self, by: int) -> None:
        if not self.accepted():
            return
        if not self._shown.scroll(by):
            self.editing.move(by)
        self.draw()

    def action_table(self, by: int) -> None:
        self.editing.to_table(by)
        self.draw()

    def action_next(self, wanted: str) -> None:
        if not self.editing.to_next(wanted):
            stage(self).say(nothing(self.editing, wanted))
        self.draw()

    def action_find(self) -> None:
        self.mode = "finding"
        self._found_from = self.editing.row.key if self.editing.row is not None else ()
        self.editing.find("")
        self._open_entry("")
        self.draw()

    @property
    def hidden_keys(self) -> set[str]:
        """Keys that mean nothing while something is typed."""
        return hidden(self.mode, bindings_of(self))

    def _open_entry(self, text: str) -> None:
        entry = self.entry
        with entry.prevent(Input.Changed):
            entry.value = shown(text)
        entry.display = True
        entry.action_end()
        self.set_focus(entry)  # at once: `entry.focus()` could come after the line of input has been closed again
        stage(self).draw_keys()

    def _close_entry(self) -> None:
        self.mode, self.problem = "", ""
        self.entry.display = False
        self.set_focus(None)
        stage(self).draw_keys()
        self.draw()

    # -- changing

    def action_edit(self) -> None:
        if self.mode == "finding" and self.editing.query != self.entry.value:
            self.editing.find(self.entry.value)
        if self.mode == "finding" and (row := self.editing.row) is not None:
            self.editing.go_to(row.key)
            self._close_entry()
            return
        row = self.editing.row
        if self.mode or row is None:
            return
        if row.kind == "unknown":
            choices.rename(self)
        elif row.field is not None and row.field.is_chosen:
            choices.choose_value(self)
        elif row.field is not None and row.field.kind == "switch":
            self.action_cycle(1)
        elif not self.editing.toggle():
            self.type_value()
        self.draw()

    def type_value(self) -> None:
        """A line of input in the place of the value under the cursor."""
        row = self.editing.row
        assert row is not None, "there is a key to type into"
        self._opened_with = "" if row.text in (NONE, "[]") else row.text  # what is typed stands in place of nothing
        self.mode, self.editing.typed = "typing", self._opened_with
        self._open_entry(self._opened_with)
        self.draw()

    def action_cycle(self, by: int) -> None:
        row = self.editing.row
        if row is not None and row.is_open is not None:
            self.editing.toggle(by > 0)
        else:
            before = self.editing.draft
            if self.tried(lambda: self.editing.cycle(by)) is False and by < 0:
                self.editing.close_around()
            tell_what_went(self, before)
        self.draw()

    def action_clear(self) -> None:
        row = self.editing.row
        if self.tried(self.editing.clear) is False and row is not None:
            stage(self).say(f"{row.name} is not in the file: what counts comes from elsewhere.")
        self.draw()

    def action_step(self, by: int) -> None:
        if not self.editing.step(by):
            stage(self).say("Nothing to take back." if by < 0 else "Nothing to do again.")
        self.draw()

    def take(self, draft: Draft) -> None:
        """From now on this is the draft."""
        self.editing.change(draft)
        self.draw()

    def tried(self, act: Callable[[], Any]) -> Any:
        """What comes of it; where the text cannot take it, the person is told and it is `None`."""
        try:
            return act()
        except FtuiError as error:
            stage(self).complain(error)
            return None

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.mode == "finding":
            self.editing.find(event.value)
        elif self.mode == "typing":
            self.problem = problem_with(self.editing, event.value)
        self.draw()

    def on_input_submitted(self) -> None:
        if self.mode == "finding":
            self.action_edit()
        elif self.accepted():
            self.draw()

    def accepted(self) -> bool:
        """Take what is typed, where something is; whether it could be."""
        if self.mode != "typing":
            return True
        text = self.entry.value
        if text == shown(self._opened_with) and (not text or self.editing.tried is None):
            self.editing.drop()  # nothing was changed
        else:
            self.problem = problem_with(self.editing, text)
            if self.problem:
                return False
            before = self.editing.draft
            self.editing.enter(text)
            tell_what_went(self, before)
        self._close_entry()
        return True

    def action_go_back(self) -> None:
        self.action_leave()

    def action_leave(self) -> None:
        if self.mode == "finding":
            row = self.editing.row
            self.editing.find(None)
            self.editing.go_to(row.key if row is not None and self.entry.value else self._found_from)
            self._close_entry()
        elif self.mode == "typing":
            self.editing.drop()
            self._close_entry()
        elif self.view != "form":
            self.action_view(self.view)
        else:
            leave.leave(self)

    def action_open(self, room: str) -> None:
        """One of the editor's lists, or something about its file."""
        ROOMS[room](self)

    # -- what is shown

    def action_view(self, view: View) -> None:
        self.view = "form" if self.view == view else view
        self._shown.turn()
        self.query_one("#aside", Canvas).wear(stage(self).look)  # it was drawn while it was hidden
        self.set_class(self.view != "form", "-aside")
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        self._shown.draw()
