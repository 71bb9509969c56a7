"""What the process of the hooks reads of its run's profile, once: as plain TOML, like the supervisor.

The stored profile has every key with its value; one that cannot be read has no hooks.
"""

import tomllib
from dataclasses import dataclass, field
from typing import Any

from ftui.runs.records.hook_records import HOOK_EVENTS
from ftui.runs.run_folder import Run
from ftui.system.files import read_plain


@dataclass(frozen=True)
class HookSettings:
    """`[hooks]` of a run, and where the run is pushed to."""

    commands: dict[str, list[str]] = field(default_factory=dict)
    """The command of each event that has one."""
    timeout_seconds: float = 600.0
    then_stop: tuple[str, ...] = ()
    after: tuple[str, ...] = ("finished",)
    """How the run must have ended for `then_stop`."""
    requires: tuple[str, ...] | None = None
    countdown_seconds: float = 60.0
    push_to: str | None = None
    addresses: tuple[str, ...] = ()
    """Environment variables whose values are addresses of `[notify]`: no output may tell them."""

    def required(self, phase: str) -> tuple[str, ...]:
        """What must be on record before the machine is stopped after this ending."""
        if self.requires is not None:
            return self.requires
        if phase != "finished" or self.push_to is None:
            return ()
        return ("pushed",) if self.push_to.startswith("command:") else ("pushed", "verified")


def read_hook_settings(run: Run) -> HookSettings:
    """The settings in the run's profile.toml."""
    try:
        profile = tomllib.loads(read_plain(run.profile).decode())
    except (OSError, ValueError, RecursionError):
        return HookSettings()
    hooks, push = _table(profile, "hooks"), _table(profile, "push")
    to, requires = push.get("to"), hooks.get("then_stop_requires")
    return HookSettings(
        commands={event: words for event in HOOK_EVENTS if (words := _words(hooks.get(event)))},
        timeout_seconds=60 * float(hooks.get("timeout_minutes", 10.0)),
        then_stop=tuple(_words(hooks.get("then_stop"))),
        after=tuple(_words(hooks.get("then_stop_after"))),
        requires=None if requires in (None, "none") else tuple(_words(requires)),
        countdown_seconds=float(hooks.get("then_stop_seconds", 60)),
        addresses=tuple(url.removeprefix("env:") for url in _words(_table(profile, "notify").get("urls"))),
        push_to=to if isinstance(to, str) and to != "none" else None,
    )  # fmt: skip


def _table(profile: dict[str, Any], name: str) -> dict[str, Any]:
    table = profile.get(name)
    return table if isinstance(table, dict) else {}


def _words(given: Any) -> list[str]:
    return [given] if isinstance(given, str) and given != "none" else given if isinstance(given, list) else []
