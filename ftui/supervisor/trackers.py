"""The trackers of a run (TensorBoard, wandb, trackio) as its supervisor sees them: each is a process of its own.

Nobody waits for one: when it hangs, dies or is not installed, the run only says so. Once the run has ended, it hands
on what is left, and ends itself.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from ftui.runs.run_folder import Run
from ftui.supervisor.companion import Companion, look_at
from ftui.system.lifeline import LEFT_SECONDS
from ftui.system.segments import total_bytes

STILL_SECONDS = 60.0  # a tracker that takes nothing for so long is slow
FINISH_SECONDS = 5.0  # how long the supervisor stays for what is left at the end


class Tracker(Companion):
    """The process of one tracker."""

    def __init__(self, run: Run, name: str) -> None:
        """Raises as `Companion`."""
        super().__init__(run, name, ("ftui.engine.trackers", name), run.trackers, name)
        self._run = run
        self._moved = time.monotonic()
        self._num_bytes = 0
        self._is_slow = False

    def has_all(self) -> bool:
        """Whether it has handed on every step that there is by now."""
        return self.progress().metrics >= _size(self._run.metrics)

    def news(self) -> list[str]:
        """New messages about the tracker: its note, and that it is slow; each once."""
        messages = super().news()
        now, num_bytes = time.monotonic(), self.progress().metrics
        if num_bytes != self._num_bytes or num_bytes >= _size(self._run.metrics):
            self._moved = now
        elif now - self._moved > STILL_SECONDS and not self._is_slow:
            self._is_slow = True
            messages.append(f"{self.name} has taken nothing for {STILL_SECONDS:.0f} s. The run does not wait for it.")
        self._num_bytes = num_bytes
        return messages


class Trackers:
    """All trackers of a run; `look` and `finish` return warnings for people."""

    def __init__(self, run: Run, names: Iterable[str]) -> None:
        self._running: list[Companion] = []
        self._news: list[str] = []
        for name in names:
            try:
                self._running.append(Tracker(run, name))
            except OSError as error:
                self._news.append(
                    f"{name} could not be started: {str(error).rstrip('.')}. The run continues without it."
                )

    def look(self) -> list[str]:
        """Look at each tracker: what it reports, that it is slow, or why it ended."""
        messages, self._news = self._news, []
        return messages + look_at(self._running)

    def finish(self) -> list[str]:
        """The run has ended: give them a moment for what is left. One that needs longer is left to itself."""
        for tracker in self._running:
            tracker.end()
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline and not all(tracker.has_ended() for tracker in self._running):
            time.sleep(0.05)
        messages, self._news = self._news, []
        for tracker in self._running:
            messages += tracker.news()
            if tracker.has_ended():
                messages += filter(None, [tracker.failure()])
            else:
                patience = f"it continues for {LEFT_SECONDS:.0f} s at most"
                messages.append(f"{tracker.name} has not taken all of the run yet: {patience} (see {tracker.log}).")
        self._running = []
        return messages


def _size(path: Path) -> int:
    try:
        return total_bytes(path)
    except OSError:
        return 0
