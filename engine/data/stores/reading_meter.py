"""How far the reading of a source is: its share in bytes or rows where they are known, and the seconds left."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ftui.units import count, duration

from ...system.pace import Pace
from ..files.blocks import Place, RowBlock
from ..files.streams import PACKED, kind_of

SAVED_SECONDS = 3.0
"""What processes must save to be worth their start: they take a second to import what they need (1.0 s and 75 MiB each
with a tokenizer of 49 k entries), and work itself goes on meanwhile."""
SURE_SECONDS = 0.5  # the first rows pay for what is done once


class Meter:
    """Tells `report` after each block; an exception that it raises ends the work."""

    def __init__(self, places: Sequence[Place], report: Callable[[str], None], *, what: str = "tokenising") -> None:
        self._report = report
        self._what = what
        self._places = places
        self._sizes = [_size(place) for place in places]
        self._pace = Pace()
        self._num_rows = 0
        self.share: float | None = None
        """0..1; `None` where it cannot be known yet."""

    def took(self, block: RowBlock) -> None:
        self._num_rows += len(block.places) + len(block.bad)
        self.share = self._share(block)
        if self.share is not None:
            self._pace.reach(self.share)
        self._report(self.detail())

    def detail(self) -> str:
        """As `tokenising 34 % · 120.0 k rows · 12 s left`."""
        parts = [f"{count(self._num_rows)} rows"]
        if self.share is not None:
            parts.insert(0, f"{100 * self.share:.0f} %")
        if (left := self._pace.seconds_left()) is not None and left >= 1:
            parts.append(f"{duration(left)} left")
        return f"{self._what} {' · '.join(parts)}"

    def pays(self, size: int) -> bool:
        """Whether so many processes would end sooner, their start included."""
        elapsed = self._pace.elapsed
        if elapsed < SURE_SECONDS:
            return False
        left = self._pace.seconds_left()
        return (elapsed if left is None else left) * (1 - 1 / size) > SAVED_SECONDS

    def _share(self, block: RowBlock) -> float | None:
        position = _position(self._places[block.file], block)
        if position is None or any(size is None for size in self._sizes):
            return None
        sizes = [size or 0 for size in self._sizes]
        return min(1.0, (sum(sizes[: block.file]) + position) / max(1, sum(sizes)))


def _size(place: Place) -> int | None:
    """The bytes of a file that is read as it stands, or the rows of a table; `None` where neither is known before."""
    if not isinstance(place, Path):
        return len(place.table)
    if place.suffix.lower() in PACKED or kind_of(place) == ".arrow":
        return None
    try:
        return _rows_in(place) if kind_of(place) == ".parquet" else place.stat().st_size
    except (OSError, ValueError):  # whoever reads it says better what is wrong
        return None


def _rows_in(path: Path) -> int:
    """Raises `ValueError` (pyarrow's own is one) where it is no Parquet."""
    from pyarrow import parquet  # 0.2 s, and most files are lines

    return int(parquet.read_metadata(path).num_rows)


def _position(place: Place, block: RowBlock) -> int | None:
    """Bytes or rows up to the end of a block, in the unit of `_size`; `None` where its rows have no offset."""
    if not block.places or block.offsets[-1] >= 0:
        return block.offsets[-1] + len(block.texts[-1]) if block.places else 0
    if isinstance(place, Path) and kind_of(place) == ".arrow":
        return None
    counts_rows = not isinstance(place, Path) or kind_of(place) == ".parquet"
    return block.places[-1] if counts_rows else None
