"""`python -P -m ftui.engine.pushing RUN_DIR`: the push at the end of a run, as its profile's [push] says."""

import os
import signal
import sys
from pathlib import Path

from ..system.environment import settle_environment

settle_environment()

from ftui.errors import FtuiError  # noqa: E402
from ftui.launch.open_run import stored_profile  # noqa: E402
from ftui.runs.run_folder import Run  # noqa: E402
from ftui.system.redact import redact_output  # noqa: E402

from .push_result import push_result  # noqa: E402


def main(arguments: list[str]) -> int:
    """Push final/ of the run in the folder that is the first argument, unless it was; returns the exit code."""
    os.umask(0o077)
    redact_output()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # so that a command it runs is ended, too
    run = Run(Path(arguments[0]).absolute())
    try:
        run.check()
        push_result(run, None, stored_profile(run).push, lambda detail: None, unless_done=True)
    except FtuiError as error:
        print(error.message, file=sys.stderr)  # the hint stands in pushes.jsonl
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
