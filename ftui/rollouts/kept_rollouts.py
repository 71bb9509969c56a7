"""Which rollouts of a run are kept, and what goes with a checkpoint: steps that share one need its files to the end."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ftui.rollouts.rollout_lines import rollout_name
from ftui.system.files import DAMAGED, make_private_folder, read_json, read_plain, replace_file

LONGEST_ROLLOUT = 8 << 30  # bytes
ENDINGS = (".safetensors", ".jsonl", ".log_probs.safetensors", ".answers.safetensors", ".answers.jsonl")
"""Of the files of a rollout, in the order in which they are deleted: without the first it is none."""


class _StoredRollout(msgspec.Struct):
    """What a checkpoint's resume/state.json says of the rollout that its last step was on (-1: of none)."""

    rollout: int = -1


def rollout_of(checkpoint: Path) -> int | None:
    """The rollout that the last step before a checkpoint was on; the next one may be on it, too."""
    try:
        number = read_json(checkpoint / "resume" / "state.json", _StoredRollout).rollout
    except (OSError, *DAMAGED):
        return None
    return None if number < 0 else number


def remove_old_rollouts(folder: Path, keep: int, checkpoints: Iterable[Path], current: int) -> list[int]:
    """Delete all but the newest `keep` rollouts; returns the numbers of those that are gone.

    `current`, which the run is on, stays, also where that is before the one of a parent that a fork has taken along.
    One that a checkpoint is on stays, and so does every one after that of the newest checkpoint: a run that is killed
    goes on from there, and takes them again.

    Raises:
        OSError: one cannot be deleted.
    """
    numbers = _numbers(folder)
    old = numbers[:-keep]
    if not old:
        return []
    needed = {number for checkpoint in checkpoints if (number := rollout_of(checkpoint)) is not None}
    gone = [number for number in old if number not in {*needed, current} and number < max(needed, default=0)]
    for number in gone:
        for ending in ENDINGS:
            (folder / f"{rollout_name(number)}{ending}").unlink(missing_ok=True)
    return gone


def copy_rollout(parent: Path, own: Path, checkpoint: Path) -> None:
    """Copy what a checkpoint is on from a run's folder of rollouts to the one of its child.

    Raises:
        OSError: it cannot be copied.
    """
    if (number := rollout_of(checkpoint)) is None:
        return
    for ending in ENDINGS[:3]:
        source = parent / f"{rollout_name(number)}{ending}"
        if source.exists():
            make_private_folder(own, inside=own.parent)
            replace_file(own / source.name, read_plain(source, LONGEST_ROLLOUT), durable=True)


def _numbers(folder: Path) -> list[int]:
    """Of the rollouts that are there, scored, in their order."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(".safetensors") for name in names if name.endswith(".safetensors"))
    return sorted(int(stem) for stem in stems if stem.isdigit())
