"""What a child run takes along beside a checkpoint: what the steps after it go by."""

from ftui.rollouts.kept_rollouts import copy_rollout
from ftui.runs.checkpoint_folders import Checkpoint
from ftui.runs.run_folder import Run
from ftui.system.files import read_plain, replace_file

LONGEST_MEASURED = 1 << 34  # bytes: four a row (losses), or a trained token (reference)


def copy_what_was_measured(parent: Run, child: Run, checkpoint: Checkpoint) -> None:
    """Copy losses, reference and the rollout that a checkpoint is on, as far as there are any.

    Raises:
        OSError: they cannot be copied.
    """
    for measured, own in ((parent.losses, child.losses), (parent.reference, child.reference)):
        if measured.exists():
            replace_file(own, read_plain(measured, LONGEST_MEASURED), durable=True)
    copy_rollout(parent.rollouts, child.rollouts, checkpoint.path)
