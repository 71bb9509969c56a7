"""`ftui push RUN[@WHAT] --to WHERE`: send a result to the hub, a folder or through a command, and verify it there."""

from collections.abc import Collection

from ftui.cli.trained.named_weights import find_weights
from ftui.cli.trained.run_job import run_job
from ftui.launch.push_job import push_job


def push(name: str, to: str | None, public: bool, overwrite: bool, allow: Collection[str]) -> int:
    """Push, and go on with a push that was cut short: what is there already is not sent again.

    Raises:
        FtuiError: there is no such run or target, or it did not arrive.
    """
    return run_job(push_job(*find_weights(name), to, public=public, overwrite=overwrite, allow=allow), allow)
