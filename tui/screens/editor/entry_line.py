"""The editor's line of input: a value is typed in its place, or the words of a key to find."""

from collections.abc import Callable
from typing import Any, Literal

from textual.screen import Screen
from textual.widgets import Input

from ftui.profile.origins import Key
from ftui.text import shown

from ...form.profile_form import ProfileForm
from ...form.text_values import NONE
from .component import Component


class EntryLine(Component):
    """`mode` says what the line is open for, `problem` what is wrong with what is being typed."""

    def __init__(self, screen: Screen[Any], form: ProfileForm, redraw: Callable[[], None]) -> None:
        super().__init__(screen, form, redraw)
        self.mode: Literal["", "typing", "finding"] = ""
        self.problem = ""
        self._old_text = ""  # of the value, before anything was typed
        self._old_key: Key = ()  # under the cursor, before the search

    @property
    def input(self) -> Input:
        """The widget; it has the keys only while the line is open."""
        return self.screen.query_one("#entry", Input)

    def start_typing(self) -> None:
        """Opens the line in the place of the value under the cursor."""
        row = self.form.row
        assert row is not None, "there is a key to type into"
        self._old_text = "" if row.text in (NONE, "[]") else row.text  # an empty value is typed over
        self.mode, self.form.input_text = "typing", self._old_text
        self._open(self._old_text)

    def start_finding(self) -> None:
        """Opens the line for the words of a key."""
        self.mode, self._old_key = "finding", self.form.key
        self.form.filter_rows("")
        self._open("")

    def change(self, text: str) -> None:
        """Follows what is typed, keystroke by keystroke."""
        if self.mode == "finding":
            self.form.filter_rows(text)
        elif self.mode == "typing":
            self.problem = self.form.preview_input(text)
        self.redraw()

    def submit(self) -> None:
        """Enter: goes to the key that was found, or takes the value."""
        if self.mode == "finding":
            if self.form.query != self.input.value:
                self.form.filter_rows(self.input.value)
            if (row := self.form.row) is not None:
                self.form.go_to(row.key)
                self._close()
        elif self.accept():
            self.redraw()

    def accept(self) -> bool:
        """Takes the value that is being typed, if one is; whether it could be taken."""
        if self.mode != "typing":
            return True
        text = self.input.value
        if text == shown(self._old_text) and (not text or self.form.trial is None):
            self.form.cancel_input()  # nothing was changed
        else:
            self.problem = self.form.preview_input(text)
            if self.problem:
                return False
            before = self.form.draft
            self.form.accept_input(text)
            self.tell_removed_keys(before)
        self._close()
        return True

    def cancel(self) -> None:
        """Escape: forgets what is being typed; after a search with words the cursor stays on the match."""
        if self.mode == "finding":
            key = self.form.key if self.input.value else ()
            self.form.filter_rows(None)
            self.form.go_to(key or self._old_key)
        else:
            self.form.cancel_input()
        self._close()

    def _open(self, text: str) -> None:
        entry = self.input
        with entry.prevent(Input.Changed):
            entry.value = shown(text)
        entry.display = True
        entry.action_end()
        self.screen.set_focus(entry)  # at once: `entry.focus()` could come after the line has been closed again
        self.stage.draw_keys()
        self.redraw()

    def _close(self) -> None:
        self.mode, self.problem = "", ""
        self.input.display = False
        self.screen.set_focus(None)
        self.stage.draw_keys()
        self.redraw()
