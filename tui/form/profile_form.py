"""A profile in the form editor: its draft, what it amounts to, the rows, the cursor, the file. No Textual."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ftui.errors import FtuiError
from ftui.profile.layers import ProfileLayer
from ftui.profile.origins import Key
from ftui.profile.paths import CURRICULUM
from ftui.profile.profile_file import read_if_exists, relocate_paths, save_text
from ftui.profile.toml_edit.document import ProfileDocument
from ftui.profile.toml_reader import read_text

from ..state.profile_paths import relocate_texts
from .edits import enter_text, rename_key, unset_row, with_value
from .form_fields import all_fields
from .form_rows import FormRow, make_rows
from .key_search import search
from .snapshot import Snapshot, read_keys, take_snapshot
from .text_values import parse_value


class ProfileForm:
    """One profile being edited.

    Attributes:
        path: where it is saved.
        on_disk: the text there when it was last read or written, if any.
        draft: the text with its history; `trial`: the same with what is being typed.
        snapshot: what draft or trial amount to.
        rows: the lines of the form, those that match `query` where there is one.
    """

    def __init__(self, path: Path, text: str, on_disk: str | None) -> None:
        self.path, self.on_disk = path.absolute(), on_disk
        self.draft = ProfileDocument(text)
        self.trial: ProfileDocument | None = None
        self.input_text: str | None = None
        self.tier: ProfileLayer | None = None
        self.open_keys: set[Key] = set()
        self.query: str | None = None
        self.cursor = 0
        self.snapshot: Snapshot
        self.rows: list[FormRow] = []
        self._tier_reasons: Mapping[Key, str] = {}
        self._saved_values: Mapping[Key, Any] = read_keys(text if on_disk is None else on_disk)
        self._refresh()
        keys = [n for n, row in enumerate(self.rows) if row.kind != "heading"]
        self.cursor = next((n for n in keys if self.rows[n].faults), next(iter(keys), 0))

    @classmethod
    def load(cls, path: Path) -> "ProfileForm":
        """The profile in a file.

        Raises:
            ProfileError: it cannot be read.
        """
        text = read_text(path)
        return cls(path, text, text)

    @classmethod
    def copy(cls, origin: Path, path: Path) -> "ProfileForm":
        """A new profile at `path` with the content of another one; nothing is written yet.

        Raises:
            ProfileError: the other one cannot be read, or is no TOML.
        """
        return cls(path, relocate_paths(read_text(origin), origin.parent, path.parent), None)

    # -- its state

    @property
    def text(self) -> str:
        """The text as it would be with what is being typed."""
        return (self.trial or self.draft).text

    @property
    def is_new(self) -> bool:
        """Whether there is no file of it yet."""
        return self.on_disk is None

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to save."""
        return self.draft.text != self.on_disk

    @property
    def has_unsaved_work(self) -> bool:
        """Whether anything a person did would be lost: what is being typed, or a change.

        The first text of a new file is nobody's work.
        """
        return self.text != self.draft.text or (self.is_changed and not (self.is_new and not self.draft.past))

    @property
    def row(self) -> FormRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def key(self) -> Key:
        """The key under the cursor; empty where there is no row."""
        return self.row.key if self.row is not None else ()

    @property
    def tier_name(self) -> str:
        """The name of the tier below the profile; empty for none."""
        return self.tier.name.removeprefix("tier ") if self.tier is not None else ""

    def _refresh(self) -> None:
        self.snapshot = take_snapshot(self.text, self.path, tier=self.tier)
        self._lay_out()

    def _lay_out(self) -> None:
        self.rows = self._make_rows(self.open_keys) if self.query is None else self._search(self.query)
        self.cursor = max(0, min(self.cursor, len(self.rows) - 1))

    def _make_rows(self, open_keys: set[Key]) -> list[FormRow]:
        return make_rows(
            self.snapshot, open_keys=open_keys, saved_values=self._saved_values, reasons=self._tier_reasons
        )

    def _search(self, query: str) -> list[FormRow]:
        """The rows of all matching keys, also those inside closed tables, the best first."""
        by_key: dict[Key, list[FormRow]] = {}
        for row in self._make_rows({field.key for field in all_fields() if field.inside}):
            if row.kind == "key":
                by_key.setdefault(tuple(part for part in row.key if not part.isdigit()), []).append(row)
        return [row for field in search(query, all_fields()) for row in by_key.get(field.key, ())]

    # -- moving

    def move(self, by: int) -> None:
        """Moves the cursor so many keys down, skipping headings."""
        keys = [n for n, row in enumerate(self.rows) if row.kind != "heading"]
        if keys:
            here = min(range(len(keys)), key=lambda n: abs(keys[n] - self.cursor))
            self.cursor = keys[max(0, min(len(keys) - 1, here + by))]

    def move_to_table(self, by: int) -> None:
        """Moves to the first key of the next table (1) or the one before (-1)."""
        heads = [n for n, row in enumerate(self.rows) if row.kind == "heading"]
        ahead = [n for n in heads if n > self.cursor] if by > 0 else [n for n in heads if n < self.cursor - 1][::-1]
        if ahead:
            self.cursor = ahead[0] + 1

    def move_to_next(self, what: Literal["fault", "change"]) -> bool:
        """Moves to the next row that has a fault or a change, wrapping around; whether there is any."""
        for number in [(self.cursor + n) % len(self.rows) for n in range(1, len(self.rows) + 1)]:
            row = self.rows[number]
            if row.kind != "heading" and (row.faults or row.warnings if what == "fault" else row.is_changed):
                self.cursor = number
                return True
        return False

    def go_to(self, key: Key) -> None:
        """Puts the cursor on a key, opening the table it is in."""
        self.open_keys |= {key[:n] for n in range(1, len(key))}
        self.query = None
        self._lay_out()
        self._go_to_visible(key)

    def _go_to_visible(self, key: Key) -> None:
        """Puts the cursor on the key, else on the innermost shown table that it is in."""
        rows = [(n, row.key) for n, row in enumerate(self.rows) if row.kind != "heading"]
        matches = (n for length in range(len(key), 0, -1) for n, name in rows if name == key[:length])
        self.cursor = next(matches, self.cursor)

    def filter_rows(self, query: str | None) -> None:
        """Narrows the form to the keys that have these words; `None`: all of it again."""
        self.query, self.cursor = query, 0
        self._lay_out()

    def toggle(self, is_open: bool | None = None) -> bool:
        """Shows or hides what is inside the table under the cursor; whether there is one."""
        row = self.row
        if row is None or row.is_open is None:
            return False
        if not row.is_open if is_open is None else is_open:
            self.open_keys.add(row.key)
        else:
            self.open_keys.discard(row.key)
        self._lay_out()
        return True

    def close_around(self) -> None:
        """Closes the table that the cursor is inside of, and goes to it."""
        key = self.key
        around = next((key[:n] for n in range(len(key) - 1, 0, -1) if key[:n] in self.open_keys), None)
        if self.row is not None and self.row.depth and around is not None:
            self.open_keys.discard(around)
            self._lay_out()
            self._go_to_visible(around)

    # -- changing

    def set_draft(self, draft: ProfileDocument) -> None:
        """Replaces the draft; the cursor stays on its key."""
        self.draft = draft
        self.cancel_input()

    def cancel_input(self) -> None:
        """Forgets what is being typed."""
        self.trial, self.input_text = None, None
        key = self.key
        self._refresh()
        if key and self.query is None:
            self._go_to_visible(key)

    def preview_input(self, text: str) -> str:
        """Shows what the draft would be with what is typed so far; returns what is wrong with it, in words."""
        row = self._typed_row()
        self.input_text, self.trial = text, None
        try:
            self.trial = enter_text(self.draft, row, text)
        except FtuiError as error:
            return f"{error.message} {error.hint}".strip()
        self._refresh()
        self._go_to_visible(row.key)  # rows above it may have gone with a key that it excludes
        fault = self.snapshot.own_fault(row.key)
        return f"{fault.message}. {fault.fix}".strip() if fault is not None and text.strip() else ""

    def accept_input(self, text: str) -> None:
        """Puts what was typed into the draft.

        Raises:
            ProfileError: that is no value.
        """
        self.set_draft(enter_text(self.draft, self._typed_row(), text))

    def _typed_row(self) -> FormRow:
        assert self.row is not None, "something is typed into a row"
        return self.row

    def cycle(self, by: int) -> bool:
        """Sets the next choice of the key under the cursor; whether it has any."""
        row = self.row
        if row is None or row.field is None or row.field.kind not in ("switch", "choice"):
            return False
        choices = row.field.choices
        here = choices.index(row.text) if row.text in choices else -1 if by > 0 else 0
        text = choices[(here + by) % len(choices)]
        self.set_draft(with_value(self.draft, row.field, row.key, parse_value(row.field, text)))
        return True

    def unset(self) -> bool:
        """Takes the key under the cursor out of the text; whether it was there."""
        row = self.row
        if row is None or row.kind == "heading":
            return False
        before = self.draft
        self.set_draft(unset_row(before, row))
        return self.draft.text != before.text

    def rename(self) -> bool:
        """Gives an unknown key the name that was meant; whether that is known."""
        row = self.row
        if row is None or row.meant is None:
            return False
        self.set_draft(rename_key(self.draft, row.key, row.meant))
        self.go_to(row.meant)
        return True

    def step_history(self, by: int) -> bool:
        """Undoes (-1) or redoes (1); the cursor goes to what that changed. Whether there was anything to do."""
        draft = self.draft.undone() if by < 0 else self.draft.redone()
        if draft is self.draft:
            return False
        before, after, here = read_keys(self.draft.text), read_keys(draft.text), self.key
        self.set_draft(draft)
        changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        tables = [key for key in changed if len(key) > 1 or key == CURRICULUM]
        if changed and self.query is None and not any(here[: len(key)] == key for key in tables):
            self.go_to(max(changed, key=len))
        return True

    def set_tier(self, tier: ProfileLayer | None, reasons: Mapping[Key, str]) -> None:
        """Lays the draft over another tier. `reasons`: why the tier says what it says."""
        self.tier, self._tier_reasons = tier, reasons
        self.set_draft(self.draft)

    # -- the file

    def is_changed_on_disk(self, path: Path) -> bool:
        """Whether somebody else has written there since it was read.

        Raises:
            ProfileError: something is there that is no text.
        """
        return read_if_exists(path) != (self.on_disk if path == self.path else None)

    def reload(self) -> None:
        """Takes in what somebody else has written, as one step.

        Raises:
            ProfileError: it cannot be read.
        """
        text = read_text(self.path)
        self.on_disk, self._saved_values = text, read_keys(text)
        self.set_draft(self.draft.to(text))

    def save(self, path: Path) -> Path:
        """Writes the draft to `path`, which is its file from now on; paths in it stay right. Returns the absolute path.

        Raises:
            DiskError: it cannot be written.
        """
        text = relocate_paths(self.draft.text, self.path.parent, path.parent)
        save_text(path, text)
        if text != self.draft.text:  # what u brings back must mean the same files too
            self.draft = ProfileDocument(text, tuple(relocate_texts(self.draft.past, self.path.parent, path.parent)))
        self.path, self.on_disk = path.absolute(), text
        self._saved_values = read_keys(text)
        self.set_draft(self.draft)
        return self.path
