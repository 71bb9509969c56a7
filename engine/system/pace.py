"""How fast work goes, from how much of it was done when, and the seconds that are left."""

import time
from collections import deque

LOOK_BACK = 10.0  # seconds that the pace is taken from


class Pace:
    """The pace of the last ten seconds; of all that was done where it took fewer steps."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._seen: deque[tuple[float, float]] = deque([(self._begun, 0.0)])

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._begun

    def reach(self, share: float) -> None:
        """So much of all the work (0..1) is done now."""
        now = time.monotonic()
        self._seen.append((now, share))
        while len(self._seen) > 2 and now - self._seen[1][0] > LOOK_BACK:
            self._seen.popleft()

    def seconds_left(self) -> float | None:
        """`None` where nothing was done yet."""
        (begun, before), (now, share) = self._seen[0], self._seen[-1]
        return (1 - share) * (now - begun) / (share - before) if share > before else None
