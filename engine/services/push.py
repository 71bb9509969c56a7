"""Pushes something of a run for a command or a screen (engine/pushing/)."""

from collections.abc import Callable
from pathlib import Path

from ftui.profile.sections.around.push_target import PushSection
from ftui.runs.records.push_records import Pushed
from ftui.runs.run_folder import Run

from ..pushing.push_result import push_result


def push(
    on_detail: Callable[[str], None], run: str, what: str | None, to: str, private: bool, overwrite: bool
) -> Pushed:
    """Send `what` (`None`: final/) of the run in folder `run` to `to`, and verify it there.

    Raises:
        FtuiError: see `push_result`.
    """
    return push_result(Run(Path(run)), what, PushSection(to=to, private=private, overwrite=overwrite), on_detail)
