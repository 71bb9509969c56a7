"""The files of a folder moved, linked, synced and deleted one by one, on volumes that can do less than a local disk.

Links are never followed where something is moved or deleted: what is outside a folder of ours is none of our business.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ftui.system.checked_write import write_checked
from ftui.system.files import PRIVATE_FOLDER, sync_path

_NO_RENAME = frozenset({errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL})
_PIECE = 1 << 20
_NO_LINK = _NO_RENAME | {errno.EMLINK, errno.EACCES}


def rename_folder(folder: Path, place: Path) -> bool:
    """Rename it in one move, durably; `False` where the volume cannot rename folders.

    Raises:
        OSError: anything else, a full disk for one.
    """
    try:
        folder.rename(place)
    except OSError as error:
        if error.errno not in _NO_RENAME:
            raise
        return False
    sync_path(place.parent)
    if folder.parent != place.parent:
        sync_path(folder.parent)
    return True


def move_files(staged: Path, target: Path, *, last: str) -> None:
    """Move the files of a staged folder, the one named `last` at the end; if that fails, what was moved is deleted."""
    names = [path.relative_to(staged).as_posix() for path in plain_files(staged)]
    names.sort(key=lambda name: (name == last, name))
    target.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    try:
        for name in names:
            if name == last:
                sync_folders(target)
            _move_file(staged, target, name)
        sync_path(target)
        sync_path(target.parent)
    except OSError:
        delete(target, [last, *names])
        raise


def _move_file(source: Path, target: Path, name: str) -> None:
    """Move one file of a folder into the same place of another; copied where the volume renames no files either."""
    _make_parents(target, name)
    try:
        (source / name).replace(target / name)
    except OSError as error:
        if error.errno not in _NO_RENAME:
            raise
        _copy(source / name, target / name)
        (source / name).unlink()


def link_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Give files of one folder a second name in another; copies where the volume has no hard links."""
    for name in names:
        _make_parents(target, name)
        try:
            os.link((source / name).resolve(), target / name)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            _copy(source / name, target / name)


def _copy(source: Path, target: Path) -> None:
    def pieces() -> Iterator[bytes]:
        with source.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                yield piece

    target.unlink(missing_ok=True)  # what a commit that was cut short has left
    write_checked(target, pieces)


def _make_parents(folder: Path, name: str) -> None:
    for parent in reversed((folder / name).relative_to(folder).parents[:-1]):
        (folder / parent).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def sync_folders(folder: Path) -> None:
    """Push the names in a folder and in those inside it to the disk."""
    for path in [*_folders(folder), folder]:
        sync_path(path)


def plain_files(folder: Path) -> Iterator[Path]:
    """The files in a folder and in those inside it, links left out."""
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _folders(folder: Path) -> list[Path]:
    """Those inside it, the innermost first."""
    return sorted((path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()), reverse=True)


def move_out(folder: Path, place: Path, *, first: str) -> None:
    """Move a folder's files one by one, beginning with `first`: without its manifest it is no checkpoint any more."""
    place.mkdir(mode=PRIVATE_FOLDER)
    if folder.is_symlink():
        folder.unlink()
        return
    names = [path.relative_to(folder).as_posix() for path in plain_files(folder)]
    names.sort(key=lambda name: (name != first, name))
    for name in names:
        _move_file(folder, place, name)
        if name == first:
            sync_path(folder)
    sync_folders(place)
    delete(folder, ())


def delete(folder: Path, names: Iterable[str]) -> None:
    """Delete files of a folder, then what is empty; a link, as folder, on the way or as file, is never followed.

    Files that somebody put beside ours stay. So does all that a network volume refuses to delete for now (`.nfs` files
    of an open descriptor): the next sweep tries again.
    """
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        for name in names:
            path = folder / name
            if not any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(folder)):
                path.unlink(missing_ok=True)
        for path in _folders(folder):
            path.rmdir()
        folder.rmdir()
    except OSError:
        return
