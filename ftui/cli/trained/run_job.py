"""Runs long work on what a run has trained, for commands: its plan, its progress, its result, printed."""

import sys
from collections.abc import Collection
from contextlib import closing

from ftui.cli.terminal import LiveOutput, table
from ftui.errors import FINISHED
from ftui.helper.client import Helper
from ftui.launch.long_job import LongJob


def run_job(job: LongJob, allow: Collection[str] = ()) -> int:
    """Print what is going to be done, do it, print what came of it. Ctrl-C ends it.

    Raises:
        FtuiError: as `job.run`.
    """
    with closing(Helper(allow)) as helper, LiveOutput(sys.stdout) as output:
        output.print("\n".join([job.title, *table(job.plan, ())]))
        rows = job.run(helper, output.draw)
        output.print("\n".join(table(rows, ())))
    return FINISHED
