"""How far a long answer is, told as it goes on."""

from collections.abc import Callable

from ftui.helper.progress_text import progress_text

from ..system.pace import Pace


class Progress:
    """Tells `on_detail` how much of `total` is done, and the time left at the pace of the last ten seconds.

    Args:
        on_detail: gets the texts. What comes too fast for a reader, the server leaves out.
        what: is being done: `merging`.
        total: of `unit`.
        unit: is counted: `tensors`, `rows`; `progress_text.BYTES` are written as `1.2 GiB of 3.4 GiB`.
    """

    def __init__(self, on_detail: Callable[[str], object], what: str, total: int, unit: str = "") -> None:
        self._on_detail, self._what, self._total, self._unit = on_detail, what, total, unit
        self._done = 0
        self._pace = Pace()
        self._tell()

    def advance(self, n: int = 1) -> None:
        """So much more is done."""
        self._done += n
        self._pace.reach(self._done / self._total)
        self._tell()

    def _tell(self) -> None:
        left = self._pace.seconds_left()
        self._on_detail(progress_text(self._what, self._done, self._total, self._unit, left))
