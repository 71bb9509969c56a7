"""Reads a checkpoint back and hashes it."""

from collections.abc import Callable
from pathlib import Path

from ftui.errors import UsageError
from ftui.runs.checkpoint_index import Entry, browse, checked
from ftui.runs.run_folder import Run
from ftui.runs.status import read_status
from ftui.supervisor.spawn import watched


def verify(on_detail: Callable[[str], None], run: str, checkpoint: str) -> Entry:
    """The entry of the checkpoint at that path below the run's folder, after every byte of it was read.

    Raises:
        UsageError: there is no such checkpoint.
    """
    opened = Run(Path(run))
    for entry in browse(opened, watched(opened, read_status(opened)).state):
        if entry.path == checkpoint:
            return checked(opened, entry)
    raise UsageError(f"{opened.name} has no {checkpoint}.")
