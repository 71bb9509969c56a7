"""How far a long answer is, in words: `merging: 120 of 272 tensors, 40 s left`."""

from collections.abc import Callable

from ftui.units import amount, duration, size

from ..system.pace import Pace

BYTES = "bytes"


class Progress:
    """Tells `on_detail` how much of `total` is done, and the time left at the pace of the last ten seconds.

    Args:
        on_detail: gets the texts. What comes too fast for a reader, the server leaves out.
        what: is being done: `merging`.
        total: of `unit`.
        unit: is counted: `tensors`, `rows`. Bytes are written as `1.2 GiB of 3.4 GiB`.
    """

    def __init__(self, on_detail: Callable[[str], object], what: str, total: int, unit: str = "") -> None:
        self._on_detail, self._what, self._total, self._unit = on_detail, what, total, unit
        self._done = 0
        self._pace = Pace()
        on_detail(self.text())

    def advance(self, n: int = 1) -> None:
        """So much more is done."""
        self._done += n
        self._pace.reach(self._done / self._total)
        self._on_detail(self.text())

    def text(self) -> str:
        """What is done, of how much, and the time left once that is known."""
        parts = [f"{self._what}: {self._count()}"]
        if self._done < self._total and (left := self._pace.seconds_left()) is not None:
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)

    def _count(self) -> str:
        if self._unit == BYTES:
            return f"{size(self._done)} of {size(self._total)}"
        return f"{amount(self._done)} of {amount(self._total)} {self._unit}".rstrip()
