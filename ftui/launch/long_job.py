"""Long work on what a run has trained (evaluate, merge, export, push): a value that commands print and screens show."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftui.system.volume import check_room, free_bytes
from ftui.units import size

if TYPE_CHECKING:  # the push at the end of a run finds its files as the command does, and asks no helper
    from ftui.helper.client import Helper, OnDetail

Rows = Sequence[tuple[str, ...]]
"""Lines of as many words each: the first says what the others are, or all are the heads of columns."""

REMOVED = "What was half written is removed."


@dataclass(frozen=True)
class LongJob:
    """Work that is checked and may begin.

    Attributes:
        title: what is done to what: `merge mine@final`.
        plan: what a person reads before it begins: what is written, where, the disk it takes (`disk_line`).
        run: does it in a helper process, tells its progress and gives the rows of its result. It leaves nothing half
            written where that process is ended. Raises FtuiError.
        when_stopped: what becomes of what was done until then.
    """

    title: str
    plan: Rows
    run: "Callable[[Helper, OnDetail], Rows]"
    when_stopped: str = REMOVED


def disk_line(folder: Path, num_bytes: int) -> tuple[str, str]:
    """The line of a plan that says what room its files take, where there is that room.

    Args:
        folder: where they will be; it may be yet to be made.
        num_bytes: that are written at most.

    Raises:
        DiskError: the volume cannot take them (a DiskFullError where it is too full).
    """
    present = next(place for place in (folder, *folder.absolute().parents) if os.path.isdir(place))
    check_room(present, num_bytes)
    return "disk", f"{size(num_bytes)} needed, {size(free_bytes(present))} free"
