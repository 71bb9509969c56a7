"""Aim: a repository (AIM_REPO, else a folder that `aim up --repo` shows); a run in it is continued by its hash."""

import os
from typing import Any

from ftui.system.files import make_private_folder

from .metric_names import Values
from .position import Position
from .sinks import TrackedRun


class Aim:
    """A `Sink` that logs to an Aim repository, in the experiment AIM_EXPERIMENT, else `ftui`."""

    def __init__(self, subject: TrackedRun, position: Position) -> None:
        repository = os.environ.get("AIM_REPO")
        if not repository:
            repository = str(make_private_folder(subject.folder / "aim", inside=subject.folder))
            print(f"written to {repository}", flush=True)
        import aim

        self._text = aim.Text
        self._run: Any = aim.Run(
            run_hash=position.library_run or None,
            repo=repository,
            experiment=os.environ.get("AIM_EXPERIMENT") or "ftui",
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )
        position.library_run = self._run.hash
        self._run.name = subject.name
        self._run["ftui_run_id"] = subject.run_id
        self._run["profile"] = subject.profile

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Track the values; `train/loss` is `loss` in the context `train`, as Aim's own callbacks have it."""
        for name, value in values.items():
            subset, _, measure = name.partition("/")
            self._run.track(value, name=measure, step=step, context={"subset": subset})

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Track prompt and answer as a text."""
        self._run.track(self._text(f"{prompt}\n\n{completion}"), name=name, step=step)

    def forget(self, step: int, time: float) -> bool:
        """False: Aim keeps what it has."""
        return False

    def flush(self) -> None:
        """Aim has a thread of its own for that."""

    def close(self, *, badly: bool) -> None:
        """Send what is left; Aim marks a run as ended, and knows no failed one."""
        self._run.close()
