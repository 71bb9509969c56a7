"""What the supervisor reads of its run's profile, once: as plain TOML, since pydantic would cost it 0.1 s and 15 MiB.

A profile that cannot be read has the defaults: the engine says what is wrong with it.
"""

import tomllib
from dataclasses import dataclass
from typing import Any

import msgspec

from ftui.profile.tracker_names import is_name
from ftui.runs.health.health_rules import Thresholds
from ftui.runs.records.hook_records import HOOK_EVENTS
from ftui.runs.run_folder import Run
from ftui.system.files import read_plain

STALL_MINUTES = 5.0  # where an older profile does not say
PATIENCE_MINUTES = 30.0
DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class SupervisorSettings:
    """Ranks of the engine, seconds that it may stand still at least (`None`: as long as it likes), and trackers."""

    num_processes: int = 1
    stall_seconds: float | None = STALL_MINUTES * 60
    trackers: tuple[str, ...] = ()
    hooks: bool = False
    """Whether the profile has commands that run beside the run."""
    notifies: bool = False
    """Whether somebody is told of it."""
    pushes: bool = False
    """Whether final/ is pushed somewhere when the run has finished."""
    nodes: int | None = None
    """Machines that share the run; `None`: what the launcher says."""
    patience_seconds: float | None = PATIENCE_MINUTES * 60
    """How long the run waits for a node (`None`: for ever)."""
    stage: str = "sft"
    max_grad_norm: float | None = None
    on_red: str = "warn"
    ignore: tuple[str, ...] = ()
    """Rules of the run's health of which nobody wants to hear."""
    thresholds: Thresholds = DEFAULT_THRESHOLDS


def read_settings(run: Run) -> SupervisorSettings:
    """The settings in the run's profile.toml; the default for each one that is absent or no value."""
    try:
        profile = tomllib.loads(read_plain(run.profile).decode())
    except (OSError, ValueError, RecursionError):
        return SupervisorSettings()
    number = _value(profile, "hardware", "num_processes")
    nodes = _value(profile, "hardware", "nodes")
    target = _value(profile, "push", "to")
    names = _texts(_value(profile, "log", "report_to"))
    return SupervisorSettings(
        num_processes=number if isinstance(number, int) and number >= 1 else 1,
        stall_seconds=_seconds(_value(profile, "health", "stall_minutes"), STALL_MINUTES),
        nodes=nodes if isinstance(nodes, int) and nodes >= 1 else None,
        patience_seconds=_seconds(_value(profile, "hardware", "node_patience_minutes"), PATIENCE_MINUTES),
        pushes=isinstance(target, str) and target != "none",
        hooks=any(_texts(_value(profile, "hooks", name)) for name in (*HOOK_EVENTS, "then_stop")),
        notifies=bool(_texts(_value(profile, "notify", "urls"))),
        trackers=tuple(dict.fromkeys(name for name in names if is_name(name))),
        stage=str(_value(profile, "run", "stage")),
        max_grad_norm=length if isinstance(length := _value(profile, "train", "max_grad_norm"), float) else None,
        on_red=str(_value(profile, "health", "on_red")),
        ignore=_texts(_value(profile, "health", "ignore")),
        thresholds=_thresholds(_value(profile, "health", "thresholds")),
    )  # fmt: skip


def _texts(given: Any) -> tuple[str, ...]:
    """A list that may be written as its only element."""
    return (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else ()


def _thresholds(given: Any) -> Thresholds:
    try:
        return msgspec.convert(given or {}, Thresholds)
    except msgspec.ValidationError:
        return DEFAULT_THRESHOLDS


def _seconds(minutes: Any, default: float) -> float | None:
    if minutes == "none":
        return None
    return 60 * (float(minutes) if isinstance(minutes, int | float) else default)


def _value(profile: dict[str, Any], section: str, key: str) -> Any:
    table = profile.get(section)
    return table.get(key) if isinstance(table, dict) else None
