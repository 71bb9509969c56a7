"""What was being edited when ftui was ended from outside: kept in the state folder, and offered at the next opening."""

import contextlib
import hashlib
import os
from pathlib import Path

from ftui.files import make_private_folder, replace_file
from ftui.profile.saving import LONGEST
from ftui.run import state_folder


def _file(path: Path) -> Path:
    return state_folder() / "unsaved" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.toml"


def keep(path: Path, text: str) -> None:
    """Keep the text of the profile at that (absolute) path. Where nothing can be written, nobody is left to be told."""
    place = _file(path)
    with contextlib.suppress(OSError, UnicodeEncodeError):
        make_private_folder(place.parent)
        replace_file(place, text.encode())


def kept(path: Path) -> str | None:
    """What was kept of it, if anything."""
    place = _file(path)
    try:
        return place.read_bytes().decode() if place.stat().st_size <= LONGEST else None
    except (OSError, UnicodeDecodeError):
        return None


def forget(path: Path) -> None:
    """It was saved, or is not wanted any more."""
    with contextlib.suppress(OSError):
        _file(path).unlink(missing_ok=True)
