"""All processes that follow a run beside its engine: its trackers, its hooks, and who tells people of it."""

from collections.abc import Sequence
from pathlib import Path

from ftui.runs.run_folder import Run
from ftui.supervisor.companion import Companion, look_at
from ftui.supervisor.settings import SupervisorSettings
from ftui.supervisor.trackers import Trackers


class Companions:
    """Those that the profile asks for. `look` and `finish` return warnings for people.

    Trackers end with the run, the others by themselves once this process has ended: the hooks after the run's push,
    and the notices after the hooks, of which they tell.
    """

    def __init__(self, run: Run, settings: SupervisorSettings) -> None:
        self._trackers = Trackers(run, settings.trackers)
        self._running: list[Companion] = []
        self._news: list[str] = []
        keep_open: Sequence[int] = ()
        if settings.notifies:
            keep_open = self._start(run, "notices", run.notices)
        if settings.hooks:
            self._start(run, "hooks", run.hooks, keep_open)

    def _start(self, run: Run, name: str, folder: Path, keep_open: Sequence[int] = ()) -> Sequence[int]:
        """Its lifeline, for one that it must outlive."""
        try:
            companion = Companion(run, name, (f"ftui.{name}",), folder, "process", keep_open)
        except OSError as error:
            self._news.append(f"{name} could not be started: {str(error).rstrip('.')}. The run continues without.")
            return ()
        self._running.append(companion)
        return (companion.lifeline,)

    def look(self) -> list[str]:
        """What they report, or why one ended."""
        messages, self._news = self._news, []
        return messages + self._trackers.look() + look_at(self._running)

    def finish(self) -> list[str]:
        """The run has ended: the trackers get a moment for what is left."""
        return self._trackers.finish()
