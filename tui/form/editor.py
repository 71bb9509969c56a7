"""A profile in the editor: its draft, what it amounts to, the rows of the form, the cursor. No Textual."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftui.profile.layers import Layer
from ftui.profile.origins import Key
from ftui.profile.paths import CURRICULUM
from ftui.profile.profile_file import relocated, save, text_on_disk
from ftui.profile.toml_edit.document import Draft
from ftui.profile.toml_edit.toml_errors import read_text

from ..state.profile_paths import moved
from .edits import cleared, entered, renamed, with_value
from .form_fields import all_fields
from .form_rows import Row, rows_of
from .key_search import search
from .snapshot import Seen, look, look_at
from .text_values import source_for


class Editing:
    """`path`: where it is saved. `on_disk`: the text there when it was last read or written, if any."""

    def __init__(self, path: Path, text: str, on_disk: str | None) -> None:
        self.path, self.on_disk = path.absolute(), on_disk
        self.draft = Draft(text)
        self.tier: Layer | None = None
        self.reasons: Mapping[Key, str] = {}  # of the tier's values
        self.opened: set[Key] = set()
        self.query: str | None = None
        self.typed: str | None = None
        self.cursor = 0
        self._before: Mapping[Key, Any] = look_at(text if on_disk is None else on_disk)
        self.tried: Draft | None = None  # with what is being typed
        self.seen: Seen
        self.rows: list[Row] = []
        self._look()
        self.cursor = self._first()

    @classmethod
    def of(cls, path: Path) -> "Editing":
        """The profile in a file.

        Raises:
            ProfileError: it cannot be read.
        """
        text = read_text(path)
        return cls(path, text, text)

    @classmethod
    def copy_of(cls, origin: Path, path: Path) -> "Editing":
        """A new profile at `path` with the content of another one; nothing is written yet.

        Raises:
            ProfileError: the other one cannot be read, or is no TOML.
        """
        return cls(path, relocated(read_text(origin), origin.parent, path.parent), None)

    # -- how it stands

    @property
    def text(self) -> str:
        """As it would be with what is being typed."""
        return (self.tried or self.draft).text

    @property
    def is_new(self) -> bool:
        return self.on_disk is None

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to save."""
        return self.draft.text != self.on_disk

    @property
    def would_lose(self) -> bool:
        """Whether anything a person did is nowhere but here: what is being typed, a change, a new file's first one."""
        return self.text != self.draft.text or (self.is_changed and not (self.is_new and not self.draft.past))

    @property
    def row(self) -> Row | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def _look(self) -> None:
        self.seen = look(self.text, self.path, below=self.tier)
        self._lay_out()

    def _lay_out(self) -> None:
        if self.query is None:
            self.rows = rows_of(self.seen, opened=self.opened, before=self._before, reasons=self.reasons)
        else:
            self.rows = self._hits(self.query)
        self.cursor = max(0, min(self.cursor, len(self.rows) - 1))

    def _hits(self, query: str) -> list[Row]:
        """The rows of all keys that are found, those inside closed tables among them, the best first."""
        inside = {field.key for field in all_fields() if field.inside}
        rows = rows_of(self.seen, opened=inside, before=self._before, reasons=self.reasons)
        by_key: dict[Key, list[Row]] = {}
        for row in rows:
            by_key.setdefault(tuple(part for part in row.key if not part.isdigit()), []).append(row)
        found = [row for field in search(query, all_fields()) for row in by_key.get(field.key, ())]
        return [row for row in found if row.kind == "key"]

    # -- moving

    def _first(self) -> int:
        """Where the cursor begins: the first fault, else the first key."""
        faulty = (n for n, row in enumerate(self.rows) if row.faults and row.kind != "heading")
        return next(faulty, next((n for n, row in enumerate(self.rows) if row.kind != "heading"), 0))

    def move(self, by: int) -> None:
        """So many keys down; headings are passed over."""
        keys = [n for n, row in enumerate(self.rows) if row.kind != "heading"]
        if not keys:
            return
        here = min(range(len(keys)), key=lambda n: abs(keys[n] - self.cursor))
        self.cursor = keys[max(0, min(len(keys) - 1, here + by))]

    def to_table(self, by: int) -> None:
        """The first key of the next (or the one before this) table."""
        heads = [n for n, row in enumerate(self.rows) if row.kind == "heading"]
        ahead = [n for n in heads if n > self.cursor] if by > 0 else [n for n in heads if n < self.cursor - 1][::-1]
        if ahead:
            self.cursor = ahead[0] + 1

    def to_next(self, wanted: str) -> bool:
        """The next row that has a `fault` or is `changed`, around the end; whether there is any."""
        order = [(self.cursor + n) % len(self.rows) for n in range(1, len(self.rows) + 1)] if self.rows else []
        for number in order:
            row = self.rows[number]
            if row.kind != "heading" and (row.faults if wanted == "fault" else row.is_changed):
                self.cursor = number
                return True
        return False

    def go_to(self, key: Key) -> None:
        """Put the cursor on a key; the table it is in is opened."""
        self.opened |= {key[:n] for n in range(1, len(key))}
        self.query = None
        self._lay_out()
        self.go_to_row(key)

    def find(self, query: str | None) -> None:
        """Narrow the form to the keys that have these words; `None`: all of it again."""
        self.query, self.cursor = query, 0
        self._lay_out()

    def toggle(self, is_open: bool | None = None) -> bool:
        """Show or hide what is inside the table under the cursor; whether there is one."""
        row = self.row
        if row is None or row.is_open is None:
            return False
        wanted = not row.is_open if is_open is None else is_open
        if wanted:
            self.opened.add(row.key)
        else:
            self.opened.discard(row.key)
        self._lay_out()
        return True

    def close_around(self) -> None:
        """Close the table that the cursor is inside of, and go to it."""
        row = self.row
        if row is not None and row.depth:
            around = next((row.key[:n] for n in range(len(row.key) - 1, 0, -1) if row.key[:n] in self.opened), None)
            if around is not None:
                self.opened.discard(around)
                self._lay_out()
                self.go_to_row(around)

    # -- changing

    def change(self, draft: Draft) -> None:
        """From now on this is the draft; the cursor stays on its key."""
        self.draft, self.tried, self.typed = draft, None, None
        key = self.row.key if self.row else ()
        self._look()
        if key and self.query is None:
            self.go_to_row(key)

    def go_to_row(self, key: Key) -> None:
        """The same without opening anything."""
        rows = [(n, row.key) for n, row in enumerate(self.rows) if row.kind != "heading"]
        same = (n for length in range(len(key), 0, -1) for n, known in rows if known == key[:length])
        self.cursor = next(same, self.cursor)

    def try_out(self, text: str) -> None:
        """Look at what the draft would be with what is typed so far.

        Raises:
            ProfileError: that is no value.
        """
        row = self.row
        assert row is not None, "something is being typed into a row"
        self.typed, self.tried = text, None
        self.tried = entered(self.draft, row, text)
        self._look()
        self.go_to_row(row.key)  # rows above it may have gone with a key that cannot stand beside it

    def drop(self) -> None:
        """Forget what is being typed."""
        self.typed, self.tried = None, None
        key = self.row.key if self.row else ()
        self._look()
        if self.query is None:
            self.go_to_row(key)

    def enter(self, text: str) -> None:
        """Raises:
        ProfileError: that is no value.
        """
        row = self.row
        assert row is not None, "something was typed into a row"
        self.change(entered(self.draft, row, text))

    def cycle(self, by: int) -> bool:
        """The next choice of the key under the cursor; whether it has any."""
        row = self.row
        if row is None or row.field is None or row.field.kind not in ("switch", "choice"):
            return False
        choices = row.field.choices
        here = choices.index(row.text) if row.text in choices else -1 if by > 0 else 0
        text = choices[(here + by) % len(choices)]
        self.change(with_value(self.draft, row.field, row.key, source_for(row.field, text)))
        return True

    def clear(self) -> bool:
        """Take the key under the cursor out; whether it was there."""
        row = self.row
        if row is None or row.kind == "heading":
            return False
        draft = self.draft.unset(row.key) if row.kind == "unknown" else cleared(self.draft, row)
        was_there = draft.text != self.draft.text
        self.change(draft)
        return was_there

    def rename(self) -> Key | None:
        """Give an unknown key the name that was meant; returns that, where it is known."""
        row = self.row
        if row is None or row.meant is None:
            return None
        self.change(renamed(self.draft, row.key, row.meant))
        self.go_to(row.meant)
        return row.meant

    def step(self, by: int) -> bool:
        """Undo (-1) or redo (1); the cursor goes where that changed something. Whether there was anything to do."""
        draft = self.draft.undone() if by < 0 else self.draft.redone()
        if draft is self.draft:
            return False
        before, after = look_at(self.draft.text), look_at(draft.text)
        here = self.row.key if self.row else ()
        self.change(draft)
        told = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        lists = [key for key in told if len(key) > 1 or key == CURRICULUM]
        if told and self.query is None and not any(here[: len(key)] == key for key in lists):
            self.go_to(max(told, key=len))
        return True

    def wear(self, tier: Layer | None, reasons: Mapping[Key, str]) -> None:
        """Lay the draft over another tier."""
        self.tier, self.reasons = tier, reasons
        self.change(self.draft)

    # -- the file

    def changed_meanwhile(self, path: Path) -> bool:
        """Whether somebody else has written there since it was read.

        Raises:
            ProfileError: something is there that is no text.
        """
        return text_on_disk(path) != (self.on_disk if path == self.path else None)

    def read_again(self) -> None:
        """Take in what somebody else has written, as one step.

        Raises:
            ProfileError: it cannot be read.
        """
        text = read_text(self.path)
        self.on_disk, self._before = text, look_at(text)
        self.change(self.draft.to(text))

    def save(self, path: Path) -> None:
        """Raises:
        DiskError: it cannot be written.
        """
        text = relocated(self.draft.text, self.path.parent, path.parent)
        save(path, text)
        if text != self.draft.text:  # what u brings back must mean the same files too
            self.draft = Draft(text, tuple(moved(self.draft.past, self.path.parent, path.parent)))
        self.path, self.on_disk = path.absolute(), text
        self._before = look_at(text)
        self.change(self.draft)
