"""Files that no crash leaves half-written and no neighbour can read: folders 0700, files 0600, temp + rename, flock."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def make_private_folder(path: Path) -> Path:
    """Create `path` (0700 under any umask); parents that do not exist yet are made private too."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=PRIVATE_FOLDER)
            folder.chmod(PRIVATE_FOLDER)
    return path


def open_private(path: Path, flags: int) -> int:
    """Open (or create, 0600 under any umask) a file; the descriptor is closed on exec."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a signal or a full pipe may make one `os.write` short."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Put `data` at `path` in one move: a reader sees the old bytes or the new ones, never a mixture.

    `durable` adds fsync of the file and its folder (a few ms on a local disk, more on a network volume).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = open_private(temporary, os.O_WRONLY | os.O_TRUNC)
    try:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    except OSError:
        temporary.unlink()  # on a full disk the half of a file would take the room of the next try
        raise
    finally:
        os.close(descriptor)
    temporary.rename(path)
    if durable:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """fsync a file or a folder by name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Take the lock file for as long as this process lives; `None` when another process holds it.

    The descriptor is returned so that its owner can keep it (or close it to let go). It is closed on exec; a process
    that forks without exec must close it in the child.
    """
    descriptor = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def wait_lock(path: Path) -> Iterator[None]:
    """Hold the lock file inside the block, waiting for whoever has it now."""
    descriptor = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
