"""Into a folder (a network volume, an rclone mount): copied, synced, read back and compared; there whole or not."""

import os
from collections.abc import Callable
from pathlib import Path

from ftui.errors import PushError, UsageError
from ftui.runs.manifest import FileEntry, file_hash
from ftui.system.checked_write import MiswrittenError, write_checked
from ftui.system.file_tree import move_files, plain_files, rename_folder, sync_folders
from ftui.system.volume import check_room, disk_error, is_disk_full
from ftui.units import size

from ..checkpoints.model_card import CARD
from .content import Content

Report = Callable[[str], object]


def check_place(folder: Path) -> None:
    """See that files can be made there.

    Raises:
        UsageError: they cannot.
    """
    parent = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"Nothing can be written to {folder}: {parent} is no folder that is yours to write to.")


def foreign_files(content: Content, folder: Path) -> list[str]:
    """Files in the folder that are not those of `content`."""
    present = [path.relative_to(folder).as_posix() for path in plain_files(folder)] if folder.is_dir() else []
    return sorted(name for name in present if name not in content.files or not _is_there(content, folder, name))


def send(content: Content, folder: Path, report: Report) -> None:
    """Copy what is not there yet; a folder that is new or empty appears in one rename.

    Raises:
        PushError: something reads back as something else, or the volume refuses it.
        DiskFullError: there is no room.
    """
    try:
        is_new = not folder.is_dir() or not any(folder.iterdir())
        place = folder.with_name(f".partial-{folder.name}-{content.run.read_facts().run_id}") if is_new else folder
        place.mkdir(parents=True, exist_ok=True)
        _copy_missing(content, place, report)
        sync_folders(place)
        if is_new and not rename_folder(place, folder):
            move_files(place, folder, last=CARD)
    except MiswrittenError as error:
        raise PushError(error.message, hint=error.hint) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_error(error, f"{content.what} cannot be copied", folder, content.num_bytes) from error
        raise PushError(
            f"{folder} cannot be written to: {error}.", hint="What was copied stays; push again."
        ) from error
    if wrong := [name for name in content.names if not _is_there(content, folder, name)]:
        raise PushError(f"{wrong[0]} in {folder} is not what was copied there.", hint="Check the volume; push again.")


def _copy_missing(content: Content, place: Path, report: Report) -> None:
    missing = [name for name in content.names if not _is_there(content, place, name)]
    check_room(place, sum(content.files[name].size for name in missing))
    for number, name in enumerate(missing, start=1):
        report(f"copying {name} ({size(content.files[name].size)}): {number} of {len(missing)} files")
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)  # what a kill has left of it
        written = write_checked(partial, lambda name=name: content.pieces(name))  # type: ignore[misc]
        if FileEntry(*written) != content.files[name]:
            raise PushError(f"{name} of {content.what} has changed while it was copied.")
        partial.replace(path)


def _is_there(content: Content, place: Path, name: str) -> bool:
    entry, path = content.files[name], place / name
    try:
        return path.is_file() and path.stat().st_size == entry.size and file_hash(path) == entry.sha256
    except OSError:
        return False
