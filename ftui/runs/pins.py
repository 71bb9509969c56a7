"""Which checkpoints are kept for good because somebody said so (pins.json)."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, read_json, replace_file
from ftui.system.volume import disk_error


class Pins(msgspec.Struct, frozen=True):
    """Steps whose checkpoints no rotation may delete."""

    steps: tuple[int, ...]


def read_pins(run: Run) -> frozenset[int]:
    """The pinned steps; none where the file is missing or damaged."""
    try:
        return frozenset(read_json(run.pins, Pins).steps)
    except (OSError, *DAMAGED):
        return frozenset()


def write_pins(run: Run, steps: Iterable[int]) -> None:
    """Replace the pinned steps. Only the holder of engine.lock may: the engine, or a command while none is running.

    Raises:
        DiskError: it cannot be written; the old pins still hold.
    """
    try:
        replace_file(run.pins, msgspec.json.encode(Pins(tuple(sorted(set(steps))))), durable=True)
    except OSError as error:
        raise disk_error(error, "The pins could not be written", run.folder) from error


def undeletable(
    checkpoint: Checkpoint, present: Sequence[Checkpoint], pins: Collection[int], best: int | None, *, has_ended: bool
) -> str | None:
    """Why a checkpoint must stay, if it must; `present` has the newest first. A run that has ended needs none."""
    if checkpoint.step in pins:
        return "it is pinned; unpin it first"
    if has_ended:
        return None
    if checkpoint == present[0]:
        return "it is the newest: the run would continue from it"
    if checkpoint.step == best:
        return "it has the best evaluation: final/ is made from it"
    return None
