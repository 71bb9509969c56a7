"""What is being edited and not saved: kept in the state folder a moment after each change, offered at the next opening.

Each editor keeps its own file, and holds a lock beside it for as long as it lives: what a running one keeps is offered
to nobody else.
"""

import contextlib
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from ftui.profile.toml_reader import LONGEST
from ftui.system.files import Lock, make_private_folder, replace_file, try_lock
from ftui.system.user_folders import state_folder

KEEP_SECONDS = 1.0  # between two looks at whether the draft has changed


def _folder() -> Path:
    return state_folder() / "unsaved"


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


class Autosave:
    """What one editor has kept."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)
        self._kept: tuple[Path, str] | None = None
        self._lock: Lock | None = None
        self._is_over = False

    def look(self, path: Path, text: str | None) -> None:
        """Keep the text of the profile at that (absolute) path; `None`: nothing is unsaved, so nothing is kept.

        Where nothing can be written, nobody is left to be told.
        """
        draft = None if text is None else (path, text)
        if self._is_over or draft == self._kept:
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            if self._kept is not None and (draft is None or draft[0] != self._kept[0]):
                self._file(self._kept[0]).unlink(missing_ok=True)
            if draft is not None:
                make_private_folder(_folder())
                self._lock = self._lock or try_lock(_folder() / f"{self._name}.lock")
                replace_file(self._file(draft[0]), draft[1].encode())
        self._kept = draft

    def end(self) -> None:
        """The draft is saved, or not wanted any more: nothing of it is kept from now on."""
        if self._kept is not None:
            self.look(self._kept[0], None)
        self._is_over = True

    def release(self) -> None:
        """The editor is gone; what it kept may be offered."""
        self._is_over = True
        if self._lock is not None:
            self._lock.close()
            with contextlib.suppress(OSError):
                self._lock.path.unlink(missing_ok=True)
            self._lock = None

    def _file(self, path: Path) -> Path:
        return _folder() / f"{_digest(path)}.{self._name}.toml"


@dataclass(frozen=True)
class SavedDraft:
    """A draft that an editor which is gone has left."""

    file: Path
    text: str

    def forget(self) -> None:
        """It is taken up, or not wanted any more."""
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)


def find_draft(path: Path) -> SavedDraft | None:
    """The newest draft that was left of the profile at that (absolute) path, if any."""
    try:
        files = sorted(_folder().glob(f"{_digest(path)}*.toml"), key=lambda file: -file.stat().st_mtime_ns)
        for file in files:
            if file.stat().st_size <= LONGEST and not _is_held(_folder() / f"{file.stem.partition('.')[2]}.lock"):
                return SavedDraft(file, file.read_bytes().decode())
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _is_held(path: Path) -> bool:
    """Whether a living editor holds the lock; that of a dead one goes."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is None:
        return True
    lock.close()
    path.unlink(missing_ok=True)
    return False
