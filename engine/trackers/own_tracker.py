"""A tracker that an installed package brings, by an entry point of the group `ftui.trackers` (docs/trackers.md)."""

from typing import Any

from ftui.profile.tracker_names import own_trackers

from .metric_names import Values
from .sinks import TrackedRun


class OwnTracker:
    """A `Sink` around an object of which only `scalars` is asked; what else it can do is used, too."""

    def __init__(self, name: str, subject: TrackedRun) -> None:
        """Load it, and call it with the run. Whatever it raises ends this process, as any tracker's."""
        self._tracker: Any = own_trackers()[name].load()(subject)

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Hand on numbers of a step."""
        self._tracker.scalars(step, time, values)

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Hand on a sample, if it wants them."""
        if hasattr(self._tracker, "text"):
            self._tracker.text(step, time, name, prompt, completion)

    def forget(self, step: int, time: float) -> bool:
        """Have it take back all above this step; False where it cannot."""
        return bool(self._tracker.forget(step, time)) if hasattr(self._tracker, "forget") else False

    def flush(self) -> None:
        """Have it store all so far, if it keeps anything back."""
        if hasattr(self._tracker, "flush"):
            self._tracker.flush()

    def close(self, *, badly: bool) -> None:
        """Tell it that nothing more comes."""
        if hasattr(self._tracker, "close"):
            self._tracker.close(badly=badly)
