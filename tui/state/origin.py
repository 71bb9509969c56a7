"""Where a child run began, and how the loss of the runs before it went up to there."""

import msgspec

from ftui.errors import UsageError
from ftui.reports.smoothing import Stretch, part_of, stretches
from ftui.runs.curves import read_stored_curves
from ftui.runs.run_folder import Run, find_parent

MOST_GENERATIONS = 16


class Origin(msgspec.Struct, frozen=True):
    """The step after which a child run began, and the name of its parent.

    `line`: the losses up to that step, of the parent and of its own parents before; empty where they are gone.
    """

    step: int
    parent: str
    line: tuple[Stretch, ...] = ()


def read_origin(run: Run) -> Origin | None:
    """Read from run.json and the parents' curves; `None` for a run that is no child of another one."""
    try:
        facts = run.read_facts()
    except UsageError:
        return None
    if facts.parent_run is None:
        return None
    step = _first_step(run)
    return Origin(step, facts.parent_name or "another run", tuple(_losses_before(run, step, MOST_GENERATIONS)))


def _first_step(run: Run) -> int:
    """The step after which it began; 0 for a run without a parent, or of damaged files."""
    from ftui.runs.checkpoint_folders import step_of  # with hashlib (5 ms), which only child runs need

    try:
        return step_of(run.read_facts().parent_checkpoint or "0")
    except UsageError:
        return 0


def _losses_before(run: Run, last: int, generations: int) -> list[Stretch]:
    """What its parents did up to step `last`, oldest first."""
    parent = find_parent(run)
    if parent is None or generations == 0:
        return []
    begin = _first_step(parent)
    line = [stretch for stretch in stretches(read_stored_curves(parent)) if begin < stretch.first <= last]
    own = [part_of(stretch, stretch.first, min(stretch.last, last)) for stretch in line]
    return [*_losses_before(parent, min(begin, last), generations - 1), *own]
