"""The process of a run's hooks (`python -P -m ftui.hooks RUN_DIR LIFELINE_FD`): runs them while the run is running
and at its end, then stops the machine if the profile says so. It outlives the run's supervisor for that."""

import os
import sys
import time
from pathlib import Path

from ftui.hooks.hook_events import ending_of
from ftui.hooks.hook_runner import HookRunner
from ftui.hooks.hook_settings import HookSettings, read_hook_settings
from ftui.hooks.then_stop import ThenStop
from ftui.runs.journal import Writer
from ftui.runs.records.hook_records import JOURNAL
from ftui.runs.run_folder import Run
from ftui.runs.status import is_final, is_running, read_status
from ftui.system.files import make_private_folder
from ftui.system.lifeline import Lifeline, wait_for_predecessor
from ftui.system.redact import hide_variables, redact_output

LOOK_SECONDS = 1.0
POLL_SECONDS = 0.02
LEAVING_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Follow the run until its end. Returns 0; what a hook does wrong is on record, and nothing else fails by it."""
    folder, descriptor = arguments
    os.umask(0o077)
    run = Run(Path(folder))
    settings = read_hook_settings(run)
    hide_variables(settings.addresses)
    redact_output()
    lifeline = Lifeline(int(descriptor), left_seconds=None)
    make_private_folder(run.hooks, inside=run.folder)
    lock = wait_for_predecessor(run.hooks / "lock")
    writer = Writer(run.hooks / JOURNAL)
    try:
        follow_run(run, settings, writer, lifeline)
    finally:
        writer.close()
        lock.close()
    return 0


def follow_run(run: Run, settings: HookSettings, writer: Writer, lifeline: Lifeline) -> None:
    """Run the hooks as their events come, the last ones once the supervisor has ended."""
    supervisor = os.getppid()
    hooks = HookRunner(run, settings, writer)
    while True:
        has_ended = lifeline.has_ended(LOOK_SECONDS)
        hooks.look()
        if has_ended:
            break
    deadline = time.monotonic() + LEAVING_SECONDS
    while os.getppid() == supervisor and time.monotonic() < deadline:  # its files are closed, and it is about to go
        time.sleep(POLL_SECONDS)
    status = read_status(run)
    if is_running(status) or not is_final(status):
        return  # its engine lives, and gets another supervisor, with other hooks
    hooks.add(ending_of(run, status.state))
    hooks.look()
    if settings.then_stop:
        print(ThenStop(run, settings, writer, status.state).go(), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
