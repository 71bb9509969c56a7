"""What the editor's canvases show, and where its line of input stands."""

from typing import TYPE_CHECKING

from ftui.profile.schema import Profile

from ...drawing.editor.form import (
    MORE,
    FormPage,
    Head,
    details,
    form_lines,
    head_line,
    top_for,
    value_column,
    value_width,
)
from ...drawing.editor.form_estimate import Forecast, breakdown, estimate_line
from ...drawing.editor.form_toml import toml_lines, top_of
from ...drawing.wording import place
from ...form.estimates import forecast
from ...render.canvas import Canvas
from ...render.spans import Frame, Line, wrapped
from .row_check import red_rows
from .simulation import DOING

if TYPE_CHECKING:
    from .editor_screen import EditorScreen

FIND = " find  "
BREAKDOWN_ROWS = 22
LEAST_TEXT_ROWS = 8


class Shown:
    """The pictures of one editor; how far its form and its text are scrolled is remembered here."""

    def __init__(self, screen: "EditorScreen") -> None:
        self.screen = screen
        self._top = self._text_top = self._told_top = 0
        self._is_scrolled = False
        self._estimated: tuple[object, ...] = ()

    def draw(self) -> None:
        """Everything anew; a canvas repaints what has changed."""
        screen = self.screen
        self._estimate()
        for name, paint in (
            ("title", self._head), ("body", self._form), ("details", self._details), ("aside", self._aside),
        ):  # fmt: skip
            screen.query_one(f"#{name}", Canvas).show(paint)
        self._place_entry()

    def scroll(self, by: int) -> bool:
        """Move the text or the estimate where it stands alone; whether it does."""
        if self.screen.view == "form" or not self.screen.has_class("-narrow"):
            return False
        self._is_scrolled = True
        self._text_top, self._told_top = max(0, self._text_top + by), max(0, self._told_top + by)
        return True

    def turn(self) -> None:
        """Another view: the text begins with the line under the cursor, the estimate with its first."""
        self._is_scrolled, self._told_top = False, 0

    def _estimate(self) -> None:
        """The estimate of the values as they stand, those being typed among them; of faulty ones the one before."""
        screen = self.screen
        profile: Profile | None = screen.editing.seen.profile
        asked = (profile, screen.card, screen.known)
        if asked == self._estimated:
            return
        self._estimated = asked
        before = screen.forecast
        if profile is None and before.told is not None and before.card == screen.card:
            screen.forecast = Forecast(before.card, before.told, is_old=True)
            return
        known = screen.known[1] if screen.known is not None and screen.known[0] == (profile, screen.card) else None
        screen.forecast = forecast(profile, screen.card, screen.place, known)

    def _head(self, frame: Frame) -> list[Line]:
        editing = self.screen.editing
        head = Head(
            editing.path.name,
            place(editing.path.absolute().parent),
            editing.is_new,
            editing.is_changed,
            len(editing.seen.told) + bool(editing.seen.fault),
            editing.seen.tier.removeprefix("tier "),
            DOING if self.screen.helper is not None else "",
            len(red_rows(self.screen)),
        )
        first: Line = [(FIND, "title")] if self.screen.mode == "finding" else head_line(frame, head)
        return [first, estimate_line(frame, self.screen.forecast)][: frame.height]

    def _form(self, frame: Frame) -> list[Line]:
        editing = self.screen.editing
        if editing.seen.fault:
            told: list[Line] = [[(f" {line}", "bad")] for line in wrapped(editing.seen.fault, frame.width - 2)]
            told += [[(f" {line}", "good")] for line in wrapped(editing.seen.fix, frame.width - 2)]
            return [[], *told, [], [(" v shows the text, E opens it in your editor, u takes a change back.", "good")]]
        self._top = top_for(editing.cursor, self._top, frame.height, len(editing.rows))
        page = FormPage(editing.rows, editing.cursor, self._top, editing.typed, editing.query)
        return form_lines(frame, page)

    def _details(self, frame: Frame) -> list[Line]:
        editing = self.screen.editing
        more = " ..." if self.screen.mode else MORE  # i is a letter while something is typed
        return details(frame, None if editing.seen.fault else editing.row, self.screen.problem, more=more)

    def _aside(self, frame: Frame) -> list[Line]:
        view, has_place = self.screen.view, frame.height >= LEAST_TEXT_ROWS + BREAKDOWN_ROWS // 2
        if view == "toml" or (view == "form" and not has_place):
            return self._text(frame)
        told = breakdown(Frame(frame.width, 200, frame.glyphs), self.screen.forecast)
        if view == "estimate":
            self._told_top = max(0, min(self._told_top, len(told) - frame.height))
            return told[self._told_top :]
        below = told[: max(1, min(BREAKDOWN_ROWS, frame.height - LEAST_TEXT_ROWS))]
        above = Frame(frame.width, frame.height - len(below) - 1, frame.glyphs)
        text = self._text(above)
        return [*text, *[[]] * (above.height - len(text)), [], *below]

    def _text(self, frame: Frame) -> list[Line]:
        editing = self.screen.editing
        seen, row = editing.seen, editing.row
        at = seen.origin(row.key).line if row is not None and seen.comes_from(row.key) == "file" else None
        at = seen.fault_line or at
        count = seen.text.count("\n") + 1
        self._text_top = top_of(None if self._is_scrolled else at, self._text_top, frame.height, count)
        wrong = {p.origin.line for p in seen.told if p.origin is not None and p.origin.layer == seen.file}
        wrong.add(seen.fault_line)
        return toml_lines(frame, seen.text, at=at, wrong={line for line in wrong if line}, top=self._text_top)

    def _place_entry(self) -> None:
        """Over the value that is being typed, or beside the word `find`."""
        screen = self.screen
        if not screen.mode:
            return
        entry = screen.entry
        width = screen.query_one("#body", Canvas).size.width or screen.size.width
        if screen.mode == "finding":
            entry.styles.offset, entry.styles.width = (len(FIND), 0), max(10, screen.size.width - len(FIND) - 2)
            return
        body = screen.query_one("#body", Canvas)
        self._top = top_for(screen.editing.cursor, self._top, body.size.height or 1, len(screen.editing.rows))
        column = value_column(width)
        entry.styles.offset = (column, body.region.y + screen.editing.cursor - self._top)
        entry.styles.width = min(width - column, value_width(width) + 12)
