"""`ftui track RUN --to tensorboard`: a run that was not reported to a tracker, handed on to it afterwards."""

import sys
import time

from ftui.cli.terminal import LiveOutput
from ftui.errors import FINISHED, DiskError, UsageError
from ftui.profile.tracker_names import check_tracker
from ftui.runs.run_folder import find_run
from ftui.supervisor.trackers import Tracker
from ftui.system.files import is_locked
from ftui.text import shown

LOOK_SECONDS = 0.1


def track(name: str, to: str) -> int:
    """Hand on what the tracker does not have yet, by the same process that `log.report_to` starts.

    Raises:
        UsageError: the run is reported there already, right now, or the tracker's library is missing or fails.
        DiskError: its files cannot be written.
    """
    run = find_run(name)
    try:
        check_tracker(to)
    except ValueError as error:
        raise UsageError(f"--to {to}: {error}.") from error
    if is_locked(run.trackers / f"{to}.lock"):
        raise UsageError(f"{run.name} is being reported to {to} right now.", hint=f"`ftui status {run.name}` shows it.")
    try:
        tracker = Tracker(run, to)
    except OSError as error:
        raise DiskError(f"{to} could not be started: {error}.", hint="Check the volume.") from error
    with LiveOutput(sys.stderr) as lines:
        lines.draw(f"handing {run.name} on to {to} ...")
        while not tracker.has_ended() and not tracker.has_all():
            time.sleep(LOOK_SECONDS)
        tracker.end()
        while not tracker.has_ended():
            time.sleep(LOOK_SECONDS)
    for message in tracker.news():
        print(shown(message))
    if reason := tracker.reason():
        raise UsageError(
            f"{to} has failed: {reason}", hint=f"Its output is in {tracker.log}; the same command goes on."
        )
    print(f"{to} has all of {shown(run.name)}: {shown(str(run.trackers))}")
    return FINISHED
