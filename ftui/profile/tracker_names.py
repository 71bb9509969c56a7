"""Which trackers there are: ftui's, and those that installed packages bring.

A package brings one by an entry point of the group `ftui.trackers` (docs/trackers.md). Looking for entry points reads
every installed package's metadata (tens of ms), which only names that are not ftui's pay for.
"""

import re
from typing import TYPE_CHECKING, Literal, get_args

from ftui.text import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Tracker = Literal["tensorboard", "wandb", "trackio", "mlflow", "aim"]
TRACKERS: tuple[str, ...] = get_args(Tracker)
GROUP = "ftui.trackers"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")  # it names files, too


def is_name(name: object) -> bool:
    """Whether it could be the name of a tracker."""
    return isinstance(name, str) and name != "none" and _NAME.fullmatch(name) is not None


def own_trackers() -> "dict[str, EntryPoint]":
    """The trackers of installed packages, by name."""
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=GROUP) if is_name(one.name) and one.name not in TRACKERS}


def check_tracker(name: str) -> str:
    """The name, where there is such a tracker.

    Raises:
        ValueError: there is none.
    """
    if name in TRACKERS or name in (own := own_trackers()):
        return name
    brought = f"; installed packages bring {', '.join(sorted(own))}" if own else ""
    known = f"{did_you_mean(name, [*TRACKERS, *own])}ftui has {', '.join(TRACKERS)}{brought}"
    raise ValueError(
        f"there is no tracker {name!r}: {known}. One of your own is an entry point {GROUP!r} "
        "of a package that is installed beside ftui"
    )
