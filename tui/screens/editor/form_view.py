"""The editor's canvases: what they show of the form, how far they are scrolled, and where the line of input is."""

from typing import Any, Literal

from textual.screen import Screen

from ...drawing.editor.form import MORE, details, form_lines, form_widths, head_line, scroll_to
from ...drawing.editor.form_estimate import breakdown, estimate_line
from ...drawing.editor.form_toml import toml_lines
from ...form.profile_form import ProfileForm
from ...render.canvas import Canvas
from ...render.spans import Frame, Line, paragraph
from ...stage import stage
from .component import blocking_findings
from .entry_line import EntryLine
from .estimate_panel import EstimatePanel

View = Literal["form", "toml", "estimate"]
FIND = " find  "
MEASURING = "counting and simulating ..."
BREAKDOWN_ROWS = 24
LEAST_TEXT_ROWS = 8


class FormView:
    """Draws the form and the other components; `view` says what is shown, or stands beside the form."""

    def __init__(self, screen: Screen[Any], form: ProfileForm, entry: EntryLine, estimate: EstimatePanel) -> None:
        self.screen, self.form, self._entry, self._estimate = screen, form, entry, estimate
        self.view: View = "form"
        self._top = self._text_top = self._estimate_top = 0
        self._is_scrolled = False

    def draw(self) -> None:
        """Draws everything anew; a canvas repaints what has changed."""
        self._estimate.refresh()
        for name, paint in (
            ("title", self._head), ("body", self._form), ("details", self._details), ("aside", self._aside),
        ):  # fmt: skip
            self.screen.query_one(f"#{name}", Canvas).show(paint)
        self._place_entry()

    def scroll(self, by: int) -> bool:
        """Scrolls the text or the estimate where it is shown alone; whether it is."""
        if self.view == "form" or not self.screen.has_class("-narrow"):
            return False
        self._is_scrolled = True
        self._text_top, self._estimate_top = max(0, self._text_top + by), max(0, self._estimate_top + by)
        return True

    def turn_to(self, view: View) -> None:
        """Shows another view, or the form again.

        The text begins with the line under the cursor, the estimate with its first.
        """
        self.view = "form" if self.view == view else view
        self._is_scrolled, self._estimate_top = False, 0
        self.screen.query_one("#aside", Canvas).wear(stage(self.screen).look)  # it was drawn while it was hidden
        self.screen.set_class(self.view != "form", "-aside")
        self.draw()

    def _head(self, frame: Frame) -> list[Line]:
        if self._entry.mode == "finding":
            first: Line = [(FIND, "title")]
        else:
            activity = MEASURING if self._estimate.is_measuring else ""
            findings = blocking_findings(stage(self.screen).row_report, self.form.snapshot.profile)
            first = head_line(frame, self.form, activity=activity, num_stopping=len(findings))
        return [first, estimate_line(frame, self._estimate.on_card)][: frame.height]

    def _form(self, frame: Frame) -> list[Line]:
        form, snapshot = self.form, self.form.snapshot
        if snapshot.syntax_error:
            lines = paragraph(snapshot.syntax_error, frame.width, "bad")
            lines += paragraph(snapshot.syntax_fix, frame.width, "good")
            return [[], *lines, [], [(" v shows the text, E opens it in your editor, u takes a change back.", "good")]]
        self._top = scroll_to(form.cursor, self._top, frame.height, len(form.rows))
        return form_lines(frame, form, self._top)

    def _details(self, frame: Frame) -> list[Line]:
        more = " ..." if self._entry.mode else MORE  # the key i is a request while something is typed
        row = None if self.form.snapshot.syntax_error else self.form.row
        width = form_widths(self.form, frame.width).value
        return details(frame, row, self._entry.problem, more=more, value_width=width)

    def _aside(self, frame: Frame) -> list[Line]:
        has_room = frame.height >= LEAST_TEXT_ROWS + BREAKDOWN_ROWS // 2
        if self.view == "toml" or (self.view == "form" and not has_room):
            return self._text(frame)
        lines = breakdown(Frame(frame.width, 200, frame.glyphs), self._estimate.on_card)
        if self.view == "estimate":
            self._estimate_top = max(0, min(self._estimate_top, len(lines) - frame.height))
            return lines[self._estimate_top :]
        below = lines[: max(1, min(BREAKDOWN_ROWS, frame.height - LEAST_TEXT_ROWS))]
        above = Frame(frame.width, frame.height - len(below) - 1, frame.glyphs)
        text = self._text(above)
        return [*text, *[[]] * (above.height - len(text)), [], *below]

    def _text(self, frame: Frame) -> list[Line]:
        snapshot, key = self.form.snapshot, self.form.key
        at = snapshot.syntax_error_line or (snapshot.origin(key).line if snapshot.source(key) == "file" else None)
        cursor, count = None if self._is_scrolled or at is None else at - 1, snapshot.text.count("\n") + 1
        self._text_top = scroll_to(cursor, self._text_top, frame.height, count, margin=3)
        origins = [fault.origin for fault in snapshot.faults]
        wrong = {origin.line for origin in origins if origin is not None and origin.layer == snapshot.file}
        wrong.add(snapshot.syntax_error_line)
        return toml_lines(frame, snapshot.text, at=at, wrong={line for line in wrong if line}, top=self._text_top)

    def _place_entry(self) -> None:
        """Puts the line of input over the value that is being typed, or beside the word `find`."""
        styles, screen_width = self._entry.input.styles, self.screen.size.width
        if self._entry.mode == "finding":
            styles.offset, styles.width = (len(FIND), 0), max(10, screen_width - len(FIND) - 2)
        elif self._entry.mode == "typing":
            body = self.screen.query_one("#body", Canvas)
            width = body.size.width or screen_width
            widths = form_widths(self.form, width)
            self._top = scroll_to(self.form.cursor, self._top, body.size.height or 1, len(self.form.rows))
            styles.offset = (widths.value_column, body.region.y + self.form.cursor - self._top)
            styles.width = width - widths.value_column
