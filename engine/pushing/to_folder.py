"""Into a folder (a network volume, an rclone mount): copied, synced, read back and compared."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from ftui.errors import PushError, UsageError
from ftui.runs.manifest import FileEntry, file_hash
from ftui.runs.records.push_records import PushBegan
from ftui.system.checked_write import MiswrittenError, write_checked
from ftui.system.file_tree import move_files, rename_folder, sync_folders
from ftui.system.files import sync_path
from ftui.system.volume import check_room, disk_error, is_disk_full
from ftui.units import size

from ..checkpoints.model_card import CARD
from .content import Content
from .present_files import find_stale

Report = Callable[[str], object]


def check_place(folder: Path) -> None:
    """See that files can be made there.

    Raises:
        UsageError: they cannot.
    """
    parent = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"Nothing can be written to {folder}: {parent} is no folder that is yours to write to.")


def open_folder(content: Content, folder: Path, before: list[PushBegan], *, overwrite: bool) -> dict[str, str]:
    """See that files may be put into the folder, if it is there; which have to go (`find_stale`).

    Raises:
        UsageError: it has files of others, or a link where a folder of ours would be.
    """
    for parent in {parent for name in content.files for parent in (folder / name).parents if folder in parent.parents}:
        if parent.is_symlink():
            raise UsageError(
                f"{parent} is a link: what is pushed would be written to {os.readlink(parent)}.",
                hint="Remove it, or choose another target.",
            )
    partial = f".partial-{content.run.read_facts().run_id}-"
    names = [name for name in _list_files(folder) if not os.path.basename(name).startswith(partial)]
    return find_stale(content, names, lambda name: _hash(folder / name), before, str(folder), overwrite=overwrite)


def _list_files(folder: Path) -> Iterator[str]:
    """Everything in a folder and in those inside it that is no folder; links are not followed."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in [*names, *links])


def _hash(path: Path) -> str:
    """Empty where it is no file that can be read."""
    try:
        return file_hash(path)
    except OSError:
        return ""


def send(content: Content, folder: Path, stale: dict[str, str], report: Report) -> None:
    """Copy what is not there yet, then delete what is stale and still as it was; a new folder appears in one rename.

    One that is there, though empty, may be where a volume is mounted: nothing can be renamed onto it, and beside it
    is another disk. Each file of it appears in a rename of its own.

    Raises:
        PushError: something reads back as something else, or the volume refuses it.
        DiskFullError: there is no room.
    """
    try:
        is_new = not os.path.lexists(folder)
        place = _make_staged(content, folder) if is_new else folder
        copy_missing(content, place, report)
        sync_folders(place)
        if is_new and not rename_folder(place, folder):
            move_files(place, folder, last=CARD)
            shutil.rmtree(place)
        _delete(folder, stale)
    except MiswrittenError as error:
        raise PushError(error.message, hint=error.hint) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_error(error, f"{content.what} cannot be copied", folder, content.num_bytes) from error
        raise PushError(
            f"{folder} cannot be written to: {error}.", hint="What was copied stays; push again."
        ) from error
    if wrong := [name for name in content.names if not _is_there(content, folder, name)]:
        message = f"{wrong[0]} in {folder} is not what was copied there."
        raise PushError(message, hint="Check the volume; push again with --overwrite.")


def _make_staged(content: Content, folder: Path) -> Path:
    """The folder beside it where this content is copied to; those of other content of this run are deleted."""
    mine = f".partial-{folder.name}-{content.run.read_facts().run_id}"
    place = folder.with_name(f"{mine}-{content.seal[:8]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.parent.iterdir():
        if path.name.startswith(mine) and path != place:
            shutil.rmtree(path)
    place.mkdir(exist_ok=True)
    return place


def _delete(folder: Path, stale: dict[str, str]) -> None:
    for name, digest in stale.items():
        if _hash(folder / name) == digest:
            (folder / name).unlink()
    if stale:
        sync_path(folder)


def copy_missing(content: Content, place: Path, report: Report) -> None:
    """Copy the files that are not in a folder yet, each staged beside its place, synced and read back.

    Raises:
        PushError: one has changed meanwhile.
        OSError, MiswrittenError, DiskFullError: the volume does not take them.
    """
    partial = f".partial-{content.run.read_facts().run_id}-"
    for path in [path for path in map(place.joinpath, _list_files(place)) if path.name.startswith(partial)]:
        path.unlink()  # half copied: what a kill has left
    missing = [name for name in content.names if not _is_there(content, place, name)]
    check_room(place, sum(content.files[name].size for name in missing))
    for number, name in enumerate(missing, start=1):
        report(f"copying {name} ({size(content.files[name].size)}): {number} of {len(missing)} files")
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(partial + path.name)
        written = write_checked(staged, lambda name=name: content.pieces(name))  # type: ignore[misc]
        if FileEntry(*written) != content.files[name]:
            raise PushError(f"{name} of {content.what} has changed while it was copied.")
        staged.replace(path)


def _is_there(content: Content, place: Path, name: str) -> bool:
    entry, path = content.files[name], place / name
    try:
        return path.is_file() and path.stat().st_size == entry.size and file_hash(path) == entry.sha256
    except OSError:
        return False
