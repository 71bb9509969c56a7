"""What a command names: weights of a run (`RUN`, `RUN@checkpoint-120`), or a folder with a model."""

import os
from pathlib import Path

from ftui.launch.evaluation_target import ADAPTER_CONFIG
from ftui.models.local import CONFIG
from ftui.runs.run_folder import Run, find_run


def find_weights(name: str) -> tuple[Run, str | None]:
    """The run, and what of it was named, if anything was.

    Raises:
        UsageError: there is no such run.
    """
    name, _, checkpoint = name.partition("@")
    return find_run(name), checkpoint or None


def find_model(name: str) -> tuple[Run | Path, str | None]:
    """The same, or the folder of a model or of an adapter where one is there.

    Raises:
        UsageError: there is neither such a folder nor such a run.
    """
    folder = os.path.expanduser(name)
    if any(os.path.isfile(os.path.join(folder, config)) for config in (CONFIG, ADAPTER_CONFIG)):
        return Path(folder), None
    return find_weights(name)
