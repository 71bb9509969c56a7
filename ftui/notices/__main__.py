"""The process that tells people of a run (`python -P -m ftui.notices RUN_DIR LIFELINE_FD`). The run never waits for
it, and it ends by itself after the run."""

import os
import sys
import tomllib
from pathlib import Path

from ftui.notices.follow_run import LEFT_SECONDS, NoticeSettings, follow_run
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder, read_plain
from ftui.system.lifeline import Lifeline, wait_for_predecessor
from ftui.system.redact import hide_variables, redact_output


def main(arguments: list[str]) -> int:
    """Follow the run; an error of apprise's ends this process, and the last line of its log says why."""
    folder, descriptor = arguments
    os.umask(0o077)
    os.nice(10)  # the engine comes first
    run = Run(Path(folder))
    notify = tomllib.loads(read_plain(run.profile).decode())["notify"]
    variables = [url.removeprefix("env:") for url in notify["urls"]]
    hide_variables(variables)
    redact_output()
    lifeline = Lifeline(int(descriptor), left_seconds=2 * LEFT_SECONDS)
    make_private_folder(run.notices, inside=run.folder)
    lock = wait_for_predecessor(run.notices / "lock")
    addresses = {name: address for name in variables if (address := os.environ.get(name))}
    unset = tuple(name for name in variables if name not in addresses)
    follow_run(run, NoticeSettings(frozenset(notify["events"]), addresses, unset), lifeline)
    lock.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
