"""Long work on what a run has trained: what it will write, how far it is, what came of it."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from ftui.errors import FtuiError
from ftui.helper.client import Helper
from ftui.launch.long_job import LongJob

from ..drawing.job_lines import job_lines, job_title
from ..drawing.wording import count_words
from ..key_table import SCROLL_KEYS, Meaning
from ..render.spans import Frame, Line
from ..stage import stage
from ..state.job_course import JobCourse
from .canvas_screen import TextScreen
from .dialogs import confirm


class JobScreen(TextScreen):
    """Checks, shows what will be written, and begins on a key. `make`: looks at what there is, in a thread.

    `leave`: called where it is left before anything has begun.
    """

    HEADING = "long work"
    CANVASES: ClassVar = ("title", "body")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "start", "start", tooltip="Do it", id="start"),
        *SCROLL_KEYS,
        Binding("escape,backspace,q", "leave", "back", key_display="esc", tooltip="Back", id="back"),
    ]
    refresh_seconds = 1.0

    def __init__(
        self, what: str, title: str, make: Callable[[], LongJob], leave: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self._make, self._leave = make, leave
        self._course = JobCourse(what, title)
        self._job: LongJob | None = None
        self._helper: Helper | None = None

    def on_mount(self) -> None:
        self._check()

    def on_unmount(self) -> None:
        if self._helper is not None:
            self._helper.close()

    @property
    def hidden_keys(self) -> Collection[str]:
        """Nothing is to be started while something is being done, or once it is done."""
        return () if self._course.phase in ("ready", "failed", "stopped") else ("start",)

    @property
    def key_meanings(self) -> Mapping[str, Meaning]:
        """What enter and escape do."""
        if self._course.is_working:
            return {"back": ("stop", "Stop it; asks first")}
        return {"start": ("again", "Try it again")} if self._course.phase in ("failed", "stopped") else {}

    # -- doing it

    def _check(self) -> None:
        self._course = JobCourse(self._course.what, self._course.title)
        self.run_worker(self._plan(), group="job", exclusive=True)

    async def _plan(self) -> None:
        try:
            self._job = await asyncio.to_thread(self._make)
        except FtuiError as error:
            self._course.end(stage(self).clock(), problem=error)
        else:
            self._course.take(self._job)
        self.draw()

    def action_start(self) -> None:
        if self._course.phase not in ("ready", "failed", "stopped"):
            return
        if self._job is None:  # it could not be checked
            self._check()
        else:
            self._course.begin()
            self.run_worker(self._work(self._job), group="job", exclusive=True)
        self.draw()

    async def _work(self, job: LongJob) -> None:
        loop, clock = asyncio.get_running_loop(), stage(self).clock
        helper = self._helper = Helper()
        try:
            result = await asyncio.to_thread(
                job.run, helper, lambda detail: loop.call_soon_threadsafe(self._hear, detail)
            )
        except FtuiError as error:
            self._course.end(clock(), problem=error)
        else:
            self._course.end(clock(), result)
        finally:
            await asyncio.to_thread(helper.close)
        self.draw()

    def _hear(self, detail: str) -> None:
        if self._course.is_working:
            self._course.hear(detail, stage(self).clock())
            self.draw()

    # -- leaving

    def action_leave(self) -> None:
        if not self._course.is_working:
            self.app.pop_screen()
            if self._course.phase in ("checking", "ready"):
                self._leave()
        elif self._course.phase == "working":
            self._ask_to_stop(lambda: None)

    def ask_before_leaving(self, leave: Callable[[], None]) -> bool:
        """Whether there is something to be stopped before ftui is left, which is asked here."""
        if self._course.is_working:
            self._ask_to_stop(leave)
        return self._course.is_working

    def _ask_to_stop(self, then: Callable[[], None]) -> None:
        what = self._course.what
        question = f"Stop this ({what})? {self._course.when_stopped}"
        confirm(self, question, "stop it", lambda: self.run_worker(self._stop(then), group="stop"))

    async def _stop(self, then: Callable[[], None]) -> None:
        if self._helper is not None and self._course.is_working:
            self._course.phase = "stopping"
            self.draw()
            await asyncio.to_thread(self._helper.interrupt)
        then()

    # -- drawing

    def text_lines(self, frame: Frame) -> list[Line]:
        return job_lines(frame, self._course, stage(self).clock())

    def visible_lines(self, frame: Frame) -> list[Line]:
        """The last one says how many there are below."""
        lines = super().visible_lines(frame)
        below = len(self.text_lines(frame)) - self.top - len(lines)
        return [*lines[:-1], [(f" {count_words(below + 1, 'more line')} (pgdn)", "faint")]] if below > 0 else lines

    def draw(self) -> None:
        if self.is_attached:
            stage(self).draw_keys()
            self.show(title=lambda frame: job_title(frame, self._course), body=self.visible_lines)
