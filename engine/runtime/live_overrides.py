"""What was changed while a run trained, each from a step on: letters (`set`) and micro-batches that did not fit.

The journal has every change, written before it counts; a checkpoint has those up to its step. Replaying them makes a
resumed run change at the same steps as an uninterrupted one.
"""

from collections.abc import Iterable

import msgspec

from ftui.runs.events import ControlApplied, MicroBatchChanged

MICRO_BATCH = "micro_batch"


class Setting(msgspec.Struct, frozen=True):
    """`name` has this value in step `from_step` and every later one."""

    from_step: int
    name: str
    value: float


def changed(settings: Iterable[Setting], new: Setting) -> list[Setting]:
    """The settings after one more; what was set earlier for the same or later steps no longer counts."""
    return [s for s in settings if s.name != new.name or s.from_step < new.from_step] + [new]


def replayed(settings: Iterable[Setting], records: Iterable[object]) -> list[Setting]:
    """The settings of a checkpoint and all that the run's journal adds to them. Replaying twice changes nothing."""
    found = list(settings)
    for record in records:
        for setting in made_by(record):
            found = changed(found, setting)
    return found


def made_by(record: object) -> list[Setting]:
    """The settings a record of the journal stands for."""
    match record:
        case ControlApplied():
            return [Setting(record.step + 1, name, value) for name, value in record.settings.items()]
        case MicroBatchChanged():
            return [Setting(record.step, MICRO_BATCH, record.new)]
    return []


def value_at(settings: Iterable[Setting], name: str, step: int) -> float | None:
    """The value in step `step`, `None` where it was never set."""
    values = [s for s in settings if s.name == name and s.from_step <= step]
    return max(values, key=lambda s: s.from_step).value if values else None
