"""How long work goes on: what was checked, which parts are done, how far this one is, what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ftui.errors import FtuiError
from ftui.helper.progress_text import share_of
from ftui.launch.long_job import REMOVED, LongJob, Rows

Phase = Literal["checking", "ready", "working", "stopping", "done", "failed", "stopped"]
PHASE_WORDS: dict[Phase, str] = {"failed": "not done"}
"""Where the word for people is another one."""


@dataclass
class Part:
    """A part of the work: what it says of itself, the time it began (Unix seconds), how long it took."""

    name: str
    text: str
    begun: float
    seconds: float | None = None


@dataclass
class JobCourse:
    """`what`: merge, push ...; `title`, `plan` and `when_stopped` are those of the job, once it is checked."""

    what: str
    title: str
    phase: Phase = "checking"
    plan: Rows = ()
    parts: list[Part] = field(default_factory=list)
    result: Rows = ()
    problem: FtuiError | None = None
    when_stopped: str = REMOVED

    def take(self, job: LongJob) -> None:
        """It is checked, and may begin."""
        self.title, self.plan, self.when_stopped, self.phase = job.title, job.plan, job.when_stopped, "ready"

    @property
    def is_working(self) -> bool:
        return self.phase in ("working", "stopping")

    def begin(self) -> None:
        """Forget an earlier attempt."""
        self.phase, self.parts, self.result, self.problem = "working", [], (), None

    def hear(self, detail: str, now: float) -> None:
        """A text about the progress: of the part that is being done, or of the next one."""
        name = detail.partition(": ")[0] if share_of(detail) is not None else detail
        last = self.parts[-1] if self.parts else None
        if last is not None and last.name == name:
            last.text = detail
            return
        self._close_part(now)
        self.parts.append(Part(name, detail, now))

    def end(self, now: float, result: Rows = (), problem: FtuiError | None = None) -> None:
        """It is done, or ended by a problem; one that somebody stopped has none."""
        self._close_part(now)
        was_stopped = self.phase == "stopping" and problem is not None
        self.phase = "stopped" if was_stopped else "done" if problem is None else "failed"
        self.result, self.problem = result, None if was_stopped else problem

    def _close_part(self, now: float) -> None:
        if self.parts and self.parts[-1].seconds is None:
            self.parts[-1].seconds = now - self.parts[-1].begun

    @property
    def current(self) -> Part | None:
        """The part that is being done."""
        return self.parts[-1] if self.parts and self.parts[-1].seconds is None else None

    @property
    def past(self) -> Sequence[Part]:
        return [part for part in self.parts if part.seconds is not None]
