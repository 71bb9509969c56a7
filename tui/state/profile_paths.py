"""Where profiles lie: the current folder, those that come with ftui, and names that are free."""

import os
from collections.abc import Sequence
from pathlib import Path

from ftui.errors import ProfileError
from ftui.profile.presets import SHIPPED
from ftui.profile.profile_file import relocate_paths

MOST_MOVED = 100  # texts to take back after a save to another folder; each takes some milliseconds


def current_folder() -> Path | None:
    """`None` where somebody has removed it."""
    try:
        return Path.cwd()
    except OSError:
        return None


def is_shipped(path: Path) -> bool:
    """Whether it comes with ftui: such a file is never changed."""
    return Path(os.path.realpath(path)).is_relative_to(SHIPPED.resolve().parent)  # a link to itself is no error here


def free_name(folder: Path, stem: str) -> Path:
    """`stem.toml` in the folder, with a number where that is taken."""
    names = [f"{stem}.toml", *(f"{stem}-{number}.toml" for number in range(2, 1000))]
    return next(folder / name for name in names if not (folder / name).exists())


def relocate_texts(texts: Sequence[str], old: Path, new: Path) -> list[str]:
    """The newest of the texts with paths that are right in another folder, back to one that is no TOML."""
    moved_texts: list[str] = []
    for text in reversed(texts[-MOST_MOVED:]):
        try:
            moved_texts.insert(0, relocate_paths(text, old, new))
        except ProfileError:
            break
    return moved_texts
