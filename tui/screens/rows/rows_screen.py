"""The X-ray: the rows of a profile as the model will see them, and the report on them, before there is any weight.

A helper process reads and tokenises; this one loads no training library, and ends that one when it is left.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ftui.dataset.report import Report
from ftui.dataset.row import RowView
from ftui.errors import FtuiError, UsageError
from ftui.helper.client import Helper
from ftui.profile.consent import check_remote_code
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile

from ...render.canvas import Canvas
from ...stage import RowReport, stage
from ..canvas_screen import SplitScreen
from ..dialogs import prompt
from . import questions as xray_questions
from .questions import RowQuery, ask_number, parse_place
from .rows_views import Shown

FIND_QUESTION = "A text of a row as it stands in its file; the search continues after what is shown."
STARTING = "opening the tokenizer and the rows ..."
AGAIN = "reading the files again ..."

ALWAYS = {"back"}
ON_ROWS = {"go", "next-finding", "finding-before", "rows"}
OF_ALL = {"search", "longest", "cut", "least", "random", "shortest", "number", "more"}
ON_REPORT = {"next", "before", "report", "raw", "boundaries", "more"}
"""Keys (by their ids) that mean something before there is a row; nothing beside a row; nothing before all rows are
read; nothing on the report."""

NEXT = "The next row, or the next part of a long one; on the report: the next finding"
BEFORE = "The row or the part before; on the report: the finding before"
TURN = "What was found in the rows; again: the row"
"""What a key does on either page: help tells it once."""

LEGEND = {
    "third line": "the whole row: thick where it is trained on, thin where it is not, dots where it is cut",
    "beside": "{wall} a line with something to train on  {attempt} one that is cut  {cursor} one that was found",
    "findings": "{best} error: a run would not start  {checkpoint} warning  {idle} note",
}
"""What the signs on these pages mean."""

XRAY_KEYS: list[BindingType] = [
    Binding("enter", "go", "go to row", tooltip="On the report: the row under the cursor", id="go"),
    Binding("n", "step(1)", "next", tooltip=NEXT, id="next"),
    Binding("p", "step(-1)", "previous", tooltip=BEFORE, id="before"),
    Binding("n", "step(1)", "next", tooltip=NEXT, id="next-finding"),
    Binding("p", "step(-1)", "previous", tooltip=BEFORE, id="finding-before"),
    Binding("R", "turn", "report", tooltip=TURN, id="report"),
    Binding("R", "turn", "row", tooltip=TURN, id="rows"),
    Binding("v", "raw", "raw", tooltip="The row as it stands in its file, beside or instead", id="raw"),
    Binding("slash", "search", "find", key_display="/", tooltip="The next row with a text in it", id="search"),
    Binding("l", "jump('longest')", "longest", tooltip="The longest row; again: the second longest", id="longest"),
    Binding("c", "jump('most_truncated')", "most cut", tooltip="The row that loses most at max_length", id="cut"),
    Binding("t", "jump('least_trained')", "least trained", tooltip="The row that is trained on least", id="least"),
    Binding("r", "jump('random')", "random", tooltip="Any row, or any part of one", id="random"),
    Binding("s", "jump('shortest')", "shortest", tooltip="The shortest row; again: the next one", id="shortest"),
    Binding("g", "number", "number", tooltip="A row by its number or its place, FILE:LINE; a part", id="number"),
    Binding("b", "boundaries", "tokens", tooltip="Where one token ends and the next begins", id="boundaries"),
    Binding("m", "more", "more", show=False, tooltip="More of what is cut, where not all of it is shown", id="more"),
    Binding("a", "again", "again", show=False, tooltip="Read the files again", id="again"),
    Binding("up,k", "scroll(-1)", "up", show=False, tooltip="A line up", id="up"),
    Binding("down,j", "scroll(1)", "down", show=False, tooltip="A line down", id="down"),
    Binding("pageup", "page(-1)", "page up", show=False, tooltip="A page up", id="page-up"),
    Binding("pagedown,space", "page(1)", "page down", show=False, tooltip="A page down", id="page-down"),
    Binding("home", "scroll(-1000000)", "first", show=False, tooltip="The first line", id="first"),
    Binding("end", "scroll(1000000)", "last", show=False, tooltip="The last line", id="last"),
    Binding("escape,backspace,q", "leave", "back", key_display="esc", tooltip="To the row; from there back", id="back"),
]


class RowsScreen(SplitScreen):
    """The rows of `profile`, whose paths are absolute; `name` is what it is called.

    `tell` gets the report once it is there.
    """

    HEADING = "the rows of a profile"
    LEGEND = LEGEND
    BINDINGS: ClassVar[list[BindingType]] = XRAY_KEYS

    def __init__(self, name: str, profile: Profile, tell: Callable[[Report], object] | None = None) -> None:
        super().__init__()
        self.called, self._profile, self._tell_report = name, profile, tell
        self.helper = Helper()
        self.sample: RowView | None = None
        self.report: Report | None = None
        self.problem: FtuiError | None = None
        self.doing = STARTING
        self.page: Literal["rows", "report"] = "rows"
        self.boundaries = False
        self._first: list[RowView] = []
        self._pending: list[RowQuery] = []
        self._is_asking = self._is_reading = False
        self._last_jump, self._rank = "", 0
        self.sought = self.found = ""  # what was last looked for; that of it which led to the row that is shown
        self.shown = Shown(self)

    def on_mount(self) -> None:
        self._begin()

    def on_unmount(self) -> None:
        self.helper.close()  # in the middle of its work too

    @property
    def hidden_keys(self) -> set[str]:
        """Keys that mean nothing on the page that is shown."""
        if self.sample is None:
            return {str(binding.id) for binding in self.BINDINGS if isinstance(binding, Binding)} - ALWAYS
        if self.page == "rows":
            return ON_ROWS | (OF_ALL if self.sample.num_first else set())
        return ON_REPORT if self.shown.leads_somewhere else ON_REPORT | {"go"}

    # -- asking the helper: one question after the other, the screen goes on meanwhile

    def _begin(self) -> None:
        """With the first row; where one is shown, with that, and it stays until it has been read again."""
        self.problem, self.report, self._rank, self._is_reading = None, None, 0, True
        doing = STARTING if self.sample is None else AGAIN
        stage(self).draw_keys()
        report = xray_questions.report("looking for what is wrong ...")
        first = [xray_questions.first_rows(doing)] if self.sample is None else []
        self._ask(*first, xray_questions.open_row(doing, self.sample), report, xray_questions.CHECK)

    def go(self, question: RowQuery) -> None:
        """A question that leads to another row."""
        self._last_jump = ""
        self._ask(question)

    def _ask(self, *questions: RowQuery) -> None:
        self._pending = sorted([*self._pending, *questions], key=lambda query: xray_questions.LATER.get(query.ask, 0))
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._answers(), group="helper")
        self.draw()

    async def _answers(self) -> None:
        loop = asyncio.get_running_loop()
        helper = self.helper
        try:
            while self._pending and self.helper is helper:
                question = self._pending.pop(0)
                self._tell(question.doing)
                answer = await asyncio.to_thread(
                    helper.ask,
                    question.ask,
                    on_detail=lambda detail: loop.call_soon_threadsafe(self._tell, detail),
                    profile=self._profile,
                    **question.given_at(self.sample),
                )
                if self.helper is helper:
                    self._take(question, answer)
        except FtuiError as error:
            if self.helper is helper and self.is_attached:
                self._failed(error)
        finally:
            if self.helper is helper:
                self._is_asking, self.doing = False, ""
                if self.is_attached:
                    self.draw()

    def _tell(self, detail: str) -> None:
        self.doing = detail
        if self.is_attached:
            self.draw()

    def _failed(self, error: FtuiError) -> None:
        self._pending.clear()
        if self._is_reading:
            self.sample, self.problem = None, error
            stage(self).draw_keys()
        else:
            stage(self).complain(error)

    def _take(self, question: RowQuery, answer: Any) -> None:
        if question.ask == "first_rows":
            self._first = msgspec.convert(answer, list[RowView])
            if self._first:
                self._show(self._first[0], question)
            return
        self._is_reading = False
        if question.ask == "report":
            self.report = msgspec.convert(answer, Report)
            if self._tell_report is not None:
                self._tell_report(self.report)
        elif question.ask == "check":
            return
        elif answer is None:
            stage(self).say(f"No row has {self.sought!r} in it.", "warn")
        else:
            self._show_row(msgspec.convert(answer, RowView), question)

    def _show_row(self, sample: RowView, question: RowQuery) -> None:
        """The row that was asked for, or where somebody has gone on among the first rows meanwhile, that one."""
        here = self.sample
        if here is not None and here.num_first and here.number != sample.number:
            self._ask(xray_questions.open_row(question.doing, here))
        else:
            self._show(sample, question)

    def _show(self, sample: RowView, question: RowQuery) -> None:
        before, self.sample = self.sample, sample
        self.found = question.given.get("text", "")
        stage(self).say(xray_questions.describe_answer(question, before, sample))  # what was said before has ended
        if not question.stays:
            if self.page == "report" and before is not None:
                self.action_turn()
            self.shown.to_top()
        if self.found:
            self.shown.to_found(sample)
        self.draw()

    # -- what the keys do

    def action_step(self, by: int) -> None:
        if self.page == "report":
            self.shown.to_finding(by)
            self.draw()
        elif self.sample is not None and self.sample.num_first:
            self._step_among_first(self.sample.number + by)
        elif self.sample is not None:
            self.go(xray_questions.step(by))

    def _step_among_first(self, number: int) -> None:
        """The helper reads all rows: until then it has no answer."""
        if 0 <= number < len(self._first):
            self._show(self._first[number], xray_questions.step(1))
        else:
            stage(self).say("The rest is being read." if number > 0 else "This is the first row.")

    @property
    def _has_all(self) -> bool:
        """Whether any row can be asked for; said where all that is known are the first ones."""
        if self.sample is not None and self.sample.num_first:
            stage(self).say("The rest is being read.")
        return self.sample is not None and not self.sample.num_first

    def action_jump(self, jump: str) -> None:
        if not self._has_all:
            return
        self._rank = self._rank + 1 if jump == self._last_jump else 0
        self._last_jump = jump
        self._ask(xray_questions.jump_to(jump, self._rank, random.getrandbits(31)))

    def action_more(self) -> None:
        sample = self.sample if self._has_all else None
        if sample is not None and sample.num_tokens > len(sample.tokens):
            self.go(xray_questions.more_of(sample))
        elif sample is not None:
            stage(self).say("All its tokens are here.")

    def action_go(self) -> None:
        where = self.shown.where if self.page == "report" else None
        if where is not None:
            self.go(xray_questions.at(where))
        elif self.page == "report":
            stage(self).say("This line is about no row.")

    def action_number(self) -> None:
        if (sample := self.sample) is not None and self._has_all:
            question = lambda answer: parse_place(answer, sample)  # noqa: E731
            prompt(self, ask_number(sample), "", question, self.go, enter="go there")

    def action_search(self) -> None:
        def check(text: str) -> str:
            if not text:
                raise UsageError("Type some text.")
            return text

        def find(text: str) -> None:
            self.sought = text
            self.go(xray_questions.search_for(text))

        if self._has_all:
            prompt(self, FIND_QUESTION, self.sought, check, find, enter="find", replaced=True)

    def action_again(self) -> None:
        """With a new helper: files may have changed since the old one opened them."""
        if self._is_reading and self.problem is None:
            return
        self.helper.close()
        self.helper = Helper()
        self._is_asking = False
        self._pending.clear()
        self._begin()

    def action_turn(self) -> None:
        self.page = "report" if self.page == "rows" else "rows"
        self._laid_out()

    def action_raw(self) -> None:
        if self.page == "rows":
            self.toggle_class("-raw")
            self._laid_out()

    def _laid_out(self) -> None:
        """Another page is shown: what was drawn while it was hidden is drawn anew."""
        self.set_class(self.page == "report", "-report")
        self.query_one("#aside", Canvas).wear(stage(self).look)
        stage(self).draw_keys()
        self.draw()

    def action_boundaries(self) -> None:
        self.boundaries = not self.boundaries
        self.draw()

    def action_scroll(self, by: int) -> None:
        self.shown.scroll(by)
        self.draw()

    def action_page(self, by: int) -> None:
        self.shown.scroll(by * max(1, self.query_one("#body", Canvas).size.height - 2))
        self.draw()

    def action_leave(self) -> None:
        if self.page == "report":
            self.action_turn()
        else:
            self.app.pop_screen()

    def draw(self) -> None:
        self.set_class(self.report is not None and bool(self.report.findings), "-found")
        self.shown.draw()
        if self.page == "report":
            stage(self).draw_keys()  # enter goes somewhere from some lines only


def open_rows(screen: Screen[Any], profile: Profile, name: str, then: Callable[[], object] = lambda: None) -> None:
    """Opens the X-ray over `screen`; `then` is called once there is a report.

    A tokenizer's code is run where the profile allows it.
    """

    def tell(report: Report) -> None:
        stage(screen).row_report = RowReport(profile, report)
        then()

    try:
        check_remote_code(profile, ())
    except FtuiError as error:
        stage(screen).complain(error)
        return
    screen.app.push_screen(RowsScreen(name, profile, tell))


def open_rows_of(screen: Screen[Any], path: Path, name: str) -> None:
    """Opens the X-ray on the profile in a file."""
    try:
        profile = resolve(path).profile
    except FtuiError as error:
        stage(screen).complain(error)
        return
    open_rows(screen, profile, name)
