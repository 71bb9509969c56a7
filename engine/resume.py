"""Where a run goes on: its newest checkpoint that verifies, if what it was made from is still the same."""

from ftui import checkpoints
from ftui.checkpoints import Checkpoint, read_manifest
from ftui.engine.logbook import Logbook
from ftui.errors import DataError, FtuiError, ModelError, ProfileError
from ftui.events import CheckpointRejected
from ftui.run import Run

SAME = "Give the run what it was started with, or start another one with --name."


def find_checkpoint(run: Run, logbook: Logbook) -> Checkpoint | None:
    """The newest valid checkpoint; damaged ones above it go to quarantine, each with its reason in the journal.

    Quarantine keeps history one line: nothing stands above the step the run goes on from.
    """
    checkpoints.sweep(run.checkpoints)
    checkpoints.sweep(run.folder)
    found, rejected = checkpoints.newest_valid(run.checkpoints, run.read_facts().run_id)
    for checkpoint, reason in rejected:
        place = checkpoints.quarantine(checkpoint)
        logbook.event(
            CheckpointRejected(
                path=f"checkpoints/{checkpoint.path.name}",
                moved_to=str(place.relative_to(run.folder)),
                reason=reason,
            ),
            durable=True,
        )
    return found


def check_same(checkpoint: Checkpoint, now: dict[str, str]) -> None:
    """Raises the error of whatever changed since the checkpoint: profile, rows, template or base model."""
    then = read_manifest(checkpoint.path).fingerprints
    causes: dict[str, tuple[type[FtuiError], str]] = {
        "profile": (ProfileError, "a key of the profile that affects the weights"),
        "data": (DataError, "the training rows"),
        "evaluation_data": (DataError, "the evaluation rows"),
        "tokenizer": (DataError, "the tokenizer or its chat template"),
        "base_model": (ModelError, "the base model"),
    }
    for name, (error, what) in causes.items():
        if then.get(name) != now.get(name):
            raise error(f"Since {checkpoint.path.name} {what} changed; a resumed run must be the same run.", hint=SAME)
