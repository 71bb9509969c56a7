"""How far a tracker has come with a run's files: trackers/NAME.json, whose one writer is that tracker."""

from pathlib import Path

import msgspec

from ftui.system.files import DAMAGED, read_json, replace_file


class Position(msgspec.Struct):
    """How far a tracker is: bytes read of each file, and the last step of each kind that it was given (-1: none)."""

    journal: int = 0
    metrics: int = 0
    telemetry: int = 0
    supervisor: int = 0
    starts: dict[int, int] = {}
    """The first step of each attempt is the one after this."""
    step: int = -1
    evaluated: int = -1
    sampled: int = -1
    prompts: list[str] = []
    """Whose answers at step `sampled` it has."""
    hardware_time: float = 0.0
    """Of the last telemetry it was given (Unix seconds)."""
    ended_badly: bool = False
    note: str = ""
    """What its user should know; the supervisor says it once."""
    library_run: str = ""
    """What MLflow or Aim calls the run."""
    event_file: str = ""
    """TensorBoard's, and how many bytes of it are those of this position."""
    event_bytes: int = 0


def load_position(path: Path) -> Position:
    """The stored position; the beginning where there is none, or none that can be read."""
    try:
        return read_json(path, Position)
    except (OSError, *DAMAGED):
        return Position()


def save_position(path: Path, position: Position) -> None:
    """Raises `OSError` when there is no room for it."""
    replace_file(path, msgspec.json.encode(position))
