"""Reads a checkpoint back and hashes it."""

from collections.abc import Callable
from pathlib import Path

from ftui.errors import UsageError
from ftui.runs.checkpoint_index import CheckpointEntry, read_checkpoints, verify_entry
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status


def verify(on_detail: Callable[[str], None], run: str, checkpoint: str) -> CheckpointEntry:
    """The entry of the checkpoint at that path below the run's folder, after every byte of it was read.

    Raises:
        UsageError: there is no such checkpoint.
    """
    run_folder = Run(Path(run))
    for entry in read_checkpoints(run_folder, read_status(run_folder).state):
        if entry.path == checkpoint and (verified := verify_entry(run_folder, entry)) is not None:
            return verified
    raise UsageError(f"{run_folder.name} has no {checkpoint}.")
