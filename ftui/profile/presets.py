"""The profiles that come with ftui, found by name."""

import contextlib
import difflib
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import ProfileError

SHIPPED = Path(__file__).parents[1] / "profiles" / "recipes"
FIRST = "quickstart"


@dataclass(frozen=True)
class Preset:
    """A shipped profile; its description is the first comment of its file."""

    name: str
    description: str
    path: Path


def shipped_presets(folder: Path = SHIPPED) -> list[Preset]:
    """Every shipped profile by name, the one to begin with first."""
    paths = sorted(folder.glob("*.toml"), key=lambda path: (path.stem != FIRST, path.stem))
    return [Preset(path.stem, _first_comment(path), path) for path in paths]


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").rstrip()
    return ""


def find_profile(text: str, folder: Path = SHIPPED) -> Path:
    """The file that `text` means: a path, or the name of a shipped profile.

    Raises:
        ProfileError: neither; the nearest names are given.
    """
    path, is_folder = Path(text), False
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, a NUL in it, the home of nobody
        is_folder = path.expanduser().is_dir()
        if path.expanduser().exists() and not is_folder:
            return path.expanduser()  # if it is a FIFO, reading it says so
    presets = {preset.name: preset.path for preset in shipped_presets(folder)}
    if text.removesuffix(".toml") in presets:
        return presets[text.removesuffix(".toml")]
    if is_folder:
        from ftui.profile.toml_reader import folder_error  # 0.1 s: pydantic

        raise folder_error(path.expanduser())
    near = difflib.get_close_matches(path.stem, presets, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`ftui profiles` lists the shipped ones."
    raise ProfileError(f"There is no profile {text!r}.", hint=hint)
