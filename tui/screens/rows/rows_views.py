"""What the X-ray's canvases show, and how far they are scrolled."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ftui.dataset.report import RowLocation
from ftui.dataset.row import RowView
from ftui.dataset.row_text import RowLine, layout_row, raw_lines

from ...drawing.rows import report_view, row_view
from ...drawing.rows.report_view import ReportLine
from ...render.canvas import Canvas
from ...render.glyphs import Glyphs
from ...render.spans import Frame, Line, clipped

if TYPE_CHECKING:
    from .rows_screen import RowsScreen

BESIDE = 120  # columns of the screen from which two canvases stand side by side
ABOVE_FOUND = 3  # lines that are seen above what was sought


class Shown:
    """The pages of one screen; rows are laid out once for each width."""

    def __init__(self, screen: "RowsScreen") -> None:
        self._screen = screen
        self._top = 0
        self._cursor = 0
        self._laid: tuple[RowView, int, Glyphs, list[RowLine]] | None = None
        self._raw: tuple[RowView, int, list[str]] | None = None
        self._report_lines: list[ReportLine] = []

    # -- moving

    def to_top(self) -> None:
        self._top = 0

    def to_found(self, sample: RowView) -> None:
        """To the text that was sought, with some lines above it."""
        body, aside = (self._screen.query_one(name, Canvas) for name in ("#body", "#aside"))
        height = max(body.size.height, aside.size.height)
        tokens, raw = self._limits(height)
        if body.size.width:
            first, limit = sample.hits[0][0] if sample.hits else 0, tokens
            lines = self._tokens(sample, body.size.width, body.look.glyphs)
            its = (n for n, line in enumerate(lines) if any(piece.token >= first for piece in line.pieces))
            at = next(its, 0) + len(row_view.notes(sample, body.size.width)) if sample.hits else 0
        else:
            limit = raw
            at = row_view.first_with(self._raw_of(sample, aside.size.width), self._screen.found)
        top = max(0, min(limit, at - ABOVE_FOUND))
        self._top = -(-top * max(tokens, raw) // limit) if limit else 0

    def scroll(self, by: int) -> None:
        if self._screen.page == "report":
            self._cursor = max(0, min(len(self._report_lines) - 1, self._cursor + by))
        else:
            self._top = max(0, min(self._farthest(), self._top + by))

    def to_finding(self, by: int) -> None:
        """The next head of a finding, or the one before."""
        heads = [n for n, line in enumerate(self._report_lines) if line.is_head]
        beyond = [n for n in heads if (n > self._cursor if by > 0 else n < self._cursor)]
        if beyond:
            self._cursor = beyond[0] if by > 0 else beyond[-1]

    @property
    def where(self) -> RowLocation | None:
        """The row that the line under the cursor is about."""
        line = self._under_cursor
        return None if line is None else line.where

    @property
    def leads_somewhere(self) -> bool:
        """Whether the line under the cursor is about a row; the first finding is where nothing was drawn yet."""
        report = self._screen.report
        if report is None:
            return False
        return (
            self.where is not None if self._report_lines else any(finding.examples for finding in report.findings[:1])
        )

    @property
    def _under_cursor(self) -> ReportLine | None:
        return self._report_lines[self._cursor] if self._cursor < len(self._report_lines) else None

    # -- drawing

    def draw(self) -> None:
        screen = self._screen
        query = screen.query_one
        if screen.page == "report":
            self._report_lines = self._report_lines if screen.report is not None else []
            query("#title", Canvas).show(lambda f: report_view.report_title(f, screen.called, screen.report))
            query("#body", Canvas).show(self._report_page)
            query("#details", Canvas).show(lambda f: report_view.finding_details(f, self._under_cursor))
            query("#aside", Canvas).show(self._numbers)
            return
        query("#body", Canvas).show(self._row_page)
        query("#title", Canvas).show(self._title)
        query("#aside", Canvas).show(self._raw_page)
        query("#details", Canvas).show(lambda f: [])

    def _title(self, frame: Frame) -> list[Line]:
        screen = self._screen
        lines = row_view.title(frame, screen.called, screen.sample, screen.report, self._seen())
        if screen.sample is not None and screen.doing and not screen.report:
            lines[2] = clipped([(f" {screen.doing}", "loss")], frame.width)
        return lines

    def _seen(self) -> range:
        """The tokens on the page."""
        sample, size = self._screen.sample, self._screen.query_one("#body", Canvas).size
        if sample is None or not size.width:
            return range(0)
        lines = self._tokens(sample, size.width, self._screen.query_one("#body", Canvas).look.glyphs)
        top = max(0, self._tops(size.height)[0] - len(row_view.notes(sample, size.width)))
        page = lines[top : top + size.height]
        if not page:
            return range(0)
        after = lines[top + size.height :][:1]
        return range(page[0].first, after[0].first if after else len(sample.tokens))

    def _row_page(self, frame: Frame) -> list[Line]:
        screen, sample = self._screen, self._screen.sample
        if sample is None:
            return self._nothing_yet(frame)
        notes = row_view.notes(sample, frame.width)
        lines = self._tokens(sample, frame.width, frame.glyphs)
        top = self._tops(frame.height)[0]
        page = lines[max(0, top - len(notes)) :][: frame.height]
        shown = row_view.token_lines(frame, page, boundaries=screen.boundaries, hits=sample.hits)
        return [*notes[top:], *shown][: frame.height]

    def _nothing_yet(self, frame: Frame) -> list[Line]:
        screen = self._screen
        if screen.problem is not None:
            return row_view.problem(frame, screen.problem.message, screen.problem.hint)
        return row_view.loading(frame, screen.called, screen.doing)

    def _raw_page(self, frame: Frame) -> list[Line]:
        sample = self._screen.sample
        if sample is None:
            return []
        lines, top = self._raw_of(sample, frame.width), self._tops(frame.height)[1]
        return row_view.raw_page(frame, sample, lines, top, self._screen.found)

    def _report_page(self, frame: Frame) -> list[Line]:
        report = self._screen.report
        if report is None:
            return self._nothing_yet(frame)
        lines = report_view.finding_lines(frame, report)
        if self._screen.size.width < BESIDE:
            lines += [ReportLine([]), *map(ReportLine, report_view.number_lines(frame, report))]
        self._report_lines = lines
        self._cursor = max(0, min(len(lines) - 1, self._cursor))
        return report_view.report_page(frame, lines, self._cursor)

    def _numbers(self, frame: Frame) -> list[Line]:
        report = self._screen.report
        return [] if report is None else report_view.number_lines(frame, report)[: frame.height]

    # -- laying out

    def _tokens(self, sample: RowView, width: int, glyphs: Glyphs) -> list[RowLine]:
        if self._laid is None or self._laid[:3] != (sample, width, glyphs):
            lines = layout_row(sample, row_view.text_width(width), row_view.signs(glyphs))
            self._laid = (sample, width, glyphs, lines)
        return self._laid[3]

    def _raw_of(self, sample: RowView, width: int) -> Sequence[str]:
        if self._raw is None or self._raw[:2] != (sample, width):
            self._raw = (sample, width, list(raw_lines(sample, max(1, width - 2))))
        return self._raw[2]

    def _limits(self, height: int) -> tuple[int, int]:
        """How far the tokens and the row in its file can be scrolled."""
        sample = self._screen.sample
        if sample is None:
            return 0, 0
        body, aside = (self._screen.query_one(name, Canvas) for name in ("#body", "#aside"))
        tokens = 0
        if body.size.width:
            lines = self._tokens(sample, body.size.width, body.look.glyphs)
            tokens = max(0, len(lines) + len(row_view.notes(sample, body.size.width)) - height)
        raw = max(0, len(self._raw_of(sample, aside.size.width)) + 1 - height) if aside.size.width else 0
        return tokens, raw

    def _farthest(self) -> int:
        height = max(self._screen.query_one(name, Canvas).size.height for name in ("#body", "#aside"))
        return max(self._limits(height))

    def _tops(self, height: int) -> tuple[int, int]:
        """The first line of the tokens and that of the row in its file: the shorter one moves as much slower."""
        tokens, raw = self._limits(height)
        longer = max(tokens, raw)
        top = min(self._top, longer)
        return (top * tokens // longer, top * raw // longer) if longer else (0, 0)
