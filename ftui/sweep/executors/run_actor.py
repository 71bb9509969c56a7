"""What runs on a node of a Ray cluster for a trial: an actor that starts it as a process of its own, and goes with it.

The actor holds the trial's GPUs as far as Ray is concerned, and gets texts only. It outlives the sweep's process; the
trial outlives it by as long as it takes to save.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from ftui.system.files import open_private


class RunActor:
    """`command`: what Python is given, as JSON, whose end of stdin tells it to end; `output`: the file that it prints
    to. `environment`: JSON of the variables that name folders, as the sweep's process has them."""

    def __init__(self, command: str, output: str, environment: str) -> None:
        import ray

        own = os.environ | json.loads(environment)
        if own.get("OMP_NUM_THREADS") == "1":  # Ray's own default; the engine decides by its cores
            del own["OMP_NUM_THREADS"]
        log = open_private(Path(output), os.O_WRONLY | os.O_APPEND)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *json.loads(command)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=own, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
        ray.get_runtime_context().current_actor.watch.remote()

    def watch(self) -> None:
        """Wait until nothing is left of the process, and end this actor, so that its GPUs are free."""
        import ray

        assert self._process.stdout is not None
        self._process.stdout.read()
        self._process.wait()
        ray.actor.exit_actor()
