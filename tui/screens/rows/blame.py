"""Which rows did it: the rows behind a step, and those that were never learned, forgotten, learned at once.

A helper process reads the ledger and the places of its rows; it ends when the screen is left.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual.binding import Binding, BindingType

from ftui.errors import DiskError, FtuiError, UsageError
from ftui.helper.blame_facts import COURSES, Course, CourseRow, LedgerRow, RowCourses, StepBlame
from ftui.helper.blame_text import as_csv
from ftui.helper.client import Helper
from ftui.launch.open_run import stored_profile
from ftui.runs.run_folder import Run
from ftui.system.files import replace_file
from ftui.text import shown

from ...drawing.rows.blame_table import blame_details, blame_table, blame_title
from ...key_table import BACK, Meaning, page_keys, step_keys
from ...stage import stage
from ..canvas_screen import ListScreen
from ..dialogs import prompt

SHOWN_ROWS = 200
ALL_ROWS = 1 << 31
PAGES: tuple[Course | None, ...] = (None, *COURSES)
"""`None`: the rows of a step."""
STEP_QUESTION = "The number of a step. Without one: the step that stands out most."
FILE_QUESTION = "Write all these rows into this file, as CSV:"

Found = StepBlame | RowCourses


class BlameScreen(ListScreen[None]):
    """Opens with the step that stands out most, or with `step`."""

    HEADING = "which rows did it"
    LEGEND: ClassVar = {
        "right": "whether it is the data or the model: the loss of the step without its first rows tells",
        "columns": "the row's share of the step's loss, its own mean loss, the one when it was seen last, and the "
        "base model's",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "row", tooltip="This row as the model sees it, among the others", id="open"),
        Binding("s", "step", "step", tooltip="The rows of another step", id="step"),
        Binding("n", "next(1)", "next", tooltip="The rows of the next step", id="next"),
        Binding("p", "next(-1)", "before", tooltip="The rows of the step before", id="before"),
        Binding("v", "page(1)", "learned", tooltip="Rows never learned, forgotten, learned at once", id="page"),
        Binding("w", "write", "write", tooltip="Write all these rows into a CSV file", id="write"),
        *step_keys("move", "row"),
        *page_keys("move", 10, "row"),
        BACK,
    ]

    def __init__(self, run: Run, step: int | None = None) -> None:
        super().__init__()
        self._run, self._step = run, step
        self._page = 0
        self._found: Found | None = None
        self._problem, self._doing = "", ""
        self._helper = Helper()
        self._asked = 0

    def on_mount(self) -> None:
        self._ask()

    def on_unmount(self) -> None:
        self._helper.close()  # in the middle of its work too

    @property
    def hidden_keys(self) -> set[str]:
        """What means nothing where no step is shown, or no row."""
        of_steps = set() if isinstance(self._found, StepBlame) else {"next", "before"}
        return of_steps | (set() if self.line_ids() else {"open", "write"})

    @property
    def key_meanings(self) -> dict[str, Meaning]:
        """What v leads to next."""
        course = PAGES[(self._page + 1) % len(PAGES)]
        word = "of a step" if course is None else course.replace("_", " ")
        return {"page": (word, f"The rows {word}" if course is None else f"The rows that were {word}")}

    def line_ids(self) -> Sequence[object]:
        return [] if self._found is None else [row.number for row in self._found.rows]

    @property
    def _row(self) -> LedgerRow | CourseRow | None:
        return self._found.rows[self.cursor] if self._found is not None and self._found.rows else None

    # -- asking the helper

    def _ask(self) -> None:
        self._asked += 1
        self._doing = "reading the ledger ..."
        self.run_worker(self._answer(self._asked), group="ask")
        self.draw()

    async def _answer(self, number: int) -> None:
        """Of two questions the later one counts."""
        try:
            found = await self._look_up(SHOWN_ROWS)
        except FtuiError as error:
            if number == self._asked and self.is_attached:
                self._found, self._problem = None, f"{error.message} {error.hint}".strip()
        else:
            if number == self._asked:
                self._found, self._problem = found, ""
                self._step = found.step if isinstance(found, StepBlame) else self._step
                self.set_cursor(0)
        if number == self._asked and self.is_attached:
            self._doing = ""
            self.draw()

    async def _look_up(self, most: int) -> Found:
        loop, course = asyncio.get_running_loop(), PAGES[self._page]
        asked: dict[str, Any] = {"step": self._step} if course is None else {"course": course}
        answer = await asyncio.to_thread(
            self._helper.ask, "blame_step" if course is None else "list_courses",
            on_detail=lambda detail: loop.call_soon_threadsafe(self._tell, detail),
            profile=stored_profile(self._run), folder=str(self._run.folder.absolute()), most=most, **asked,
        )  # fmt: skip
        kind: type[StepBlame] | type[RowCourses] = StepBlame if course is None else RowCourses
        return msgspec.convert(answer, kind)

    def _tell(self, detail: str) -> None:
        if self._doing and self.is_attached:
            self._doing = detail
            self.draw()

    # -- keys

    def action_page(self, by: int) -> None:
        self._page = (self._page + by) % len(PAGES)
        self._found = None
        self._ask()

    def action_next(self, by: int) -> None:
        if isinstance(self._found, StepBlame) and self._found.step + by > 0:
            self._go(self._found.step + by)

    def action_step(self) -> None:
        def check(text: str) -> tuple[int | None]:
            if not text.strip():
                return (None,)
            if not text.strip().isdecimal():
                raise UsageError("A number from 1 on, or nothing.")
            return (int(text),)

        prompt(self, STEP_QUESTION, "", check, lambda answer: self._go(*answer), enter="go there")

    def _go(self, step: int | None) -> None:
        self._page, self._step = 0, step
        self._ask()

    async def action_open(self) -> None:
        """Where the row stands, the rows of the profile are opened."""
        from .questions import at
        from .rows_screen import RowsScreen

        if (row := self._row) is None:
            return
        if row.where is None:
            stage(self).say("Where this row stands is not known: the data have changed, or are gone.", "warn")
            return
        screen = RowsScreen(self._run.name, stored_profile(self._run))
        await self.app.push_screen(screen)
        screen.go(at(row.where))

    def action_write(self) -> None:
        found = self._found
        if found is None:
            return
        what = f"step-{found.step}" if isinstance(found, StepBlame) else found.course.replace("_", "-")

        def check(text: str) -> Path:
            path = Path(text).expanduser()
            if not text.strip() or path.exists():
                raise UsageError("Give a name." if not text.strip() else f"{path} exists already.")
            if not path.parent.is_dir():
                raise UsageError(f"There is no folder {path.parent}.")
            return path

        prompt(self, FILE_QUESTION, f"{self._run.name}-{what}.csv", check, self._write, enter="write it")

    def _write(self, path: Path) -> None:
        self.run_worker(self._write_and_tell(path), group="write")

    async def _write_and_tell(self, path: Path) -> None:
        try:
            found = await self._look_up(ALL_ROWS)
            try:
                await asyncio.to_thread(replace_file, path, as_csv(found.rows).encode())
            except OSError as error:
                raise DiskError(f"{path} cannot be written: {error.strerror}.", hint="Give another place.") from error
        except FtuiError as error:
            stage(self).complain(error)
        else:
            stage(self).say(f"{len(found.rows):,} rows are in {shown(str(path))}.", "good")

    # -- drawing

    def draw(self) -> None:
        if not self.is_attached:
            return
        name, found, doing, cursor, problem = self._run.name, self._found, self._doing, self.cursor, self._problem
        row, total = self._row, 0
        if found is not None:
            total = found.num_rows if isinstance(found, StepBlame) else found.num_found
        stage(self).draw_keys()
        self.show(
            title=lambda frame: blame_title(frame, name, found, doing),
            body=lambda frame: blame_table(frame, found, cursor, problem),
            details=lambda frame: blame_details(frame, row, total - len(found.rows) if found is not None else 0),
        )
