"""What would happen to what was chosen, with every value of its profile; and making it happen.

This room loads pydantic: other screens import it when it is about to be shown.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.dataset.row_counts import RowCounts, count_lines
from ftui.errors import DiskError, FtuiError, UsageError
from ftui.estimate.simulation import count_rows
from ftui.helper.client import Helper
from ftui.profile.consent import REMOTE_CODE
from ftui.runs.run_folder import Run

from ..drawing.resolved_table import ResolvedPage, ValueRow, count_spans, find_rows, resolved_page, rows
from ..drawing.wording import place
from ..form.estimates import describe_fit
from ..key_table import BACK, CURSOR_KEYS
from ..render.spans import Frame, Line, Span
from ..stage import stage
from ..state.launch_plan import (
    LaunchOptions,
    LaunchPlan,
    carry_out,
    check_new_name,
    plan_launch,
    with_overrides,
)
from .canvas_screen import ListScreen
from .dialogs import prompt

NAME_QUESTION = "The name of the run, which is also its folder's."
FIND_QUESTION = "Words of a key: of its name, or of what it means."
VALUE_QUESTION = "A value for this run only, as section.key=value; several, with blanks between them."
MENDING = "R reads it again, e changes a value for this run."
COUNTING: Span = ("counting rows and tokens ...", "muted")


class ResolvedScreen(ListScreen[None]):
    """Of a `profile` or a `run`; `checkpoint` is the step of the run's to continue from, if not the newest.

    `overrides`: what is proposed to be different, which `u` takes back.
    """

    HEADING = "what would be started"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,s", "start", "start", key_display="enter", tooltip="Do it, and watch the run", id="start"),
        Binding("e", "change", "change", tooltip="Change a value (the one under the cursor)", id="change"),
        Binding("r", "rows", "rows", tooltip="Its rows as the model sees them, and what is wrong with them", id="rows"),
        Binding("u", "undo", "undo", tooltip="Take the last change back", id="undo"),
        Binding("slash", "find", "find", key_display="/", tooltip="Go to a key by its name or its help", id="find"),
        Binding("n", "rename", "name", tooltip="Give the run another name", id="name"),
        Binding("d", "count", "count", tooltip="Dry run: count rows, tokens and steps; starts nothing", id="count"),
        Binding("R", "again", "read again", tooltip="Read the profile's file and the run again", id="again"),
        *CURSOR_KEYS,
        BACK,
    ]
    CANVASES: ClassVar[Sequence[str]] = ("body",)

    def __init__(
        self,
        *,
        profile: Path | None = None,
        run: Run | None = None,
        checkpoint: int | None = None,
        tier: str | None = None,
        overrides: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        options = LaunchOptions(profile, run, checkpoint, tier=tier)
        self.options = replace(options, overrides=overrides)
        self.plan: LaunchPlan | None = None
        self._before: list[LaunchOptions] = [options] if overrides else []
        self._problem: FtuiError | None = None
        self._verdict: Span | None = None  # on the card it would run on
        self._doing = ""
        self._is_opening = False
        self._counted: RowCounts | FtuiError | None = None
        self._is_counting = False
        self._rows: list[ValueRow] = []
        self._sought = ""  # the key that was changed last: the cursor goes there

    def on_mount(self) -> None:
        self._look()

    # -- what would happen

    def _look(self) -> None:
        self._doing = "looking ..."
        self.run_worker(self._show_plan(), exclusive=True, group="look")

    async def _show_plan(self, problem: FtuiError | None = None) -> None:
        """`problem`: what came of the last try to start it, which stays on the screen."""
        try:
            self.plan = await asyncio.to_thread(plan_launch, self.options)
        except FtuiError as error:
            self.plan, problem = None, error
        plan = self.plan
        self._verdict = None
        if plan is not None:
            self._verdict = await asyncio.to_thread(describe_fit, plan.resolved.profile, self.options.tier)
        self._problem, self._doing = problem, ""
        self.draw()

    def _change(self, options: LaunchOptions) -> None:
        """From now on this is wanted."""
        if self._is_opening:
            return
        self.options = options
        self._forget_counts()
        self._look()

    def _forget_counts(self) -> None:
        self.workers.cancel_group(self, "count")
        self._counted, self._is_counting = None, False

    def action_again(self) -> None:
        self._change(self.options)

    def action_undo(self) -> None:
        if self._before:
            self._change(self._before.pop())
        else:
            stage(self).say("Nothing has been changed.")

    def action_change(self) -> None:
        row = self._rows[self.cursor] if self._rows else ValueRow([])
        question = f"{VALUE_QUESTION}\n{row.meaning}" if row.meaning else VALUE_QUESTION

        def change(options: LaunchOptions) -> None:
            self._sought = "".join(options.overrides[-1:]).partition("=")[0].strip()
            self._change_to(options)

        prompt(self, question, row.entry, lambda text: with_overrides(self.options, text), change)

    def action_find(self) -> None:
        def check(text: str) -> list[int]:
            matches = find_rows(self._rows, text, self.cursor)
            if text.strip() and not matches:
                raise UsageError("No key has these words in its name or its help.")
            return matches

        def go(matches: list[int]) -> None:
            if matches:
                self.cursor = matches[0]
                self.draw()

        prompt(self, FIND_QUESTION, "", check, go, enter="go there")

    def action_rename(self) -> None:
        name = self.plan.run.name if self.plan is not None else ""
        check = partial(check_new_name, self.options)
        prompt(self, NAME_QUESTION, name, check, lambda name: self._change_to(replace(self.options, name=name)))

    def _change_to(self, options: LaunchOptions) -> None:
        if options != self.options:
            self._before.append(self.options)
            self._change(options)

    # -- the dry run

    def action_count(self) -> None:
        if self.plan is None:
            stage(self).say("There is no whole profile to count the rows of.", "warn")
            return
        self._counted, self._is_counting, self.cursor = None, True, 0
        self.draw()
        self.run_worker(self._count(self.plan), exclusive=True, group="count")

    def action_rows(self) -> None:
        from .rows.rows_screen import open_rows

        if self.plan is None:
            stage(self).say("There is no whole profile to read the rows of.", "warn")
        else:
            open_rows(self, self.plan.resolved.profile, self.plan.run.name)

    async def _count(self, plan: LaunchPlan) -> None:
        helper = Helper(allow=[REMOTE_CODE])  # whose plan it is has the consent: `plan_launch` asked for it
        try:
            self._counted = await asyncio.to_thread(count_rows, helper, plan.resolved.profile)
        except FtuiError as error:
            self._counted = error
        finally:  # this worker is cancelled when the counts are no longer wanted
            helper.close()
        self._is_counting, self.cursor = False, 0
        self.draw()

    # -- making it happen

    def action_start(self) -> None:
        if self._doing:
            return
        if self.plan is None:
            stage(self).say("This cannot be started as it is.", "warn")
            return
        self._doing, self._is_opening = f"opening {self.plan.run.name} ...", True
        self.draw()
        self.run_worker(self._start(self.plan), group="start")

    async def _start(self, plan: LaunchPlan) -> None:
        try:
            run = await asyncio.to_thread(carry_out, self.options, plan)
        except (FtuiError, OSError) as error:
            if isinstance(error, OSError):
                error = DiskError(f"{plan.run.folder} cannot be opened: {error}.")
            self._is_opening = False
            await self._show_plan(error)
        else:
            self._land(run)

    def _land(self, run: Run) -> None:
        """On the live view, with nothing but the list of runs behind it."""
        from .runs import RunsScreen  # it opens this screen itself

        while len(self.app.screen_stack) > 1 and not isinstance(self.app.screen, RunsScreen):
            self.app.pop_screen()
        if not isinstance(self.app.screen, RunsScreen):
            self.app.push_screen(RunsScreen())
        stage(self).open_run(run)

    # -- what is shown

    def line_ids(self) -> Sequence[object]:
        return range(len(self._rows))

    def draw(self) -> None:
        self.show(body=self._lines)

    def _lines(self, frame: Frame) -> list[Line]:
        page = self._page(frame.width)
        self._rows = rows(frame, page)
        if self._sought and self._rows:
            places = (n for n, row in enumerate(self._rows) if row.entry.startswith(f"{self._sought}="))
            self.cursor, self._sought = next(places, self.cursor), ""
        self.cursor = max(0, min(self.cursor, len(self._rows) - 1))
        return resolved_page(frame, page, self._rows, self.cursor)

    def _page(self, width: int) -> ResolvedPage:
        plan, options = self.plan, self.options
        paragraphs: list[Span] = []
        if self._problem is not None:
            paragraphs += [(self._problem.message, "bad"), (self._problem.hint, "good")]
        if plan is not None:
            paragraphs += [(plan.sentence, "title"), *((note, "warn") for note in plan.notes)]
            paragraphs += [self._verdict] if self._verdict is not None and plan.act != "attach" else []
        elif not self._doing:
            paragraphs.append((MENDING, "muted"))
        if self._doing:
            paragraphs.append((self._doing, "loss"))
        source = f"profile {place(options.profile or Path())}" + (f" over tier {options.tier}" if options.tier else "")
        if options.run is not None:
            source = f"run {place(options.run.folder)}"
        values = plan.values if plan is not None else ()
        return ResolvedPage(source, [(text, style) for text, style in paragraphs if text], self._counts(width), values)

    def _counts(self, width: int) -> list[Span]:
        if self._is_counting:
            return [COUNTING]
        if self._counted is None:
            return []
        if isinstance(self._counted, FtuiError):
            hint = self._counted.hint
            return [(self._counted.message, "bad"), *([(hint, "good")] if hint else [])]
        return count_spans(count_lines(self._counted), width)
