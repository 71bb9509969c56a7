"""Which trackers there are, and what each must be able to do."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .metric_names import Values
from .position import Position


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker reports. `folder` is where all that a tracker writes belongs; `profile` are its tables.

    `run_id` and `first_name` (the name it was opened under) stay when it is renamed, `name` is that of today.
    """

    run_id: str
    name: str
    first_name: str
    folder: Path
    profile: dict[str, Any]
    profile_text: str


class Sink(Protocol):
    """A tracker's library. Whatever it raises ends this process, which is all that can go wrong."""

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Send numbers of a step, each under its name. `time` is Unix time."""
        ...

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Send a sample: a prompt and the model's answer after `step` steps. `time` is Unix time."""
        ...

    def forget(self, step: int, time: float) -> bool:
        """Take back all above this step; False where the library cannot."""
        ...

    def flush(self) -> None:
        """All so far is with the library; `position` is stored after this."""
        ...

    def close(self, *, badly: bool) -> None:
        """Send what is left and close; `badly` where the run failed."""
        ...


def open_sink(name: str, subject: TrackedRun, position: Position) -> Sink:
    """The library is imported here. It may set `position` back to the beginning, or leave a note in it."""
    if (opener := _OPENERS.get(name)) is not None:
        return opener(subject, position)
    from .own_tracker import OwnTracker

    return OwnTracker(name, subject)


def _tensorboard(subject: TrackedRun, position: Position) -> Sink:
    from .to_tensorboard import TensorBoard

    return TensorBoard(subject, position)


def _wandb(subject: TrackedRun, position: Position) -> Sink:
    from .to_wandb import Wandb

    return Wandb(subject, position)


def _trackio(subject: TrackedRun, position: Position) -> Sink:
    from .to_trackio import Trackio

    return Trackio(subject, position)


def _mlflow(subject: TrackedRun, position: Position) -> Sink:
    from .to_mlflow import MLflow

    return MLflow(subject, position)


def _aim(subject: TrackedRun, position: Position) -> Sink:
    from .to_aim import Aim

    return Aim(subject, position)


_OPENERS: dict[str, Callable[[TrackedRun, Position], Sink]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
    "aim": _aim,
}
