"""Files that no crash leaves half-written and no neighbour can read: folders 0700, files 0600, temp + rename, locks."""

import contextlib
import errno
import fcntl
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ftui.system.process_id import Identity, is_alive, this_process

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
NO_FSYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})
NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_GONE = frozenset({errno.ENOENT, errno.ESTALE})
_SETTLE_SECONDS = 0.2


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
        try:
            write_all(descriptor, data)
            if durable:
                sync_open(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk the half of a file would take the space of the next try
        raise
    if durable:
        sync_path(path.parent)


def sync_open(descriptor: int) -> None:
    """fsync a file that has just been opened or written; a volume that has no fsync is put up with.

    Raises:
        OSError: the data did not reach the disk (EIO, ENOSPC ...).
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FSYNC:
            raise


def sync_path(path: Path) -> None:
    """fsync a file or a folder by name, as `sync_open` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_open(descriptor)
    finally:
        os.close(descriptor)


class Lease(msgspec.Struct, frozen=True):
    """The contents of a lock file on a volume without flock: its holder, and a token that only the holder knows."""

    identity: Identity
    token: str


@dataclass(frozen=True)
class Lock:
    """A lock file held by this process until it ends or calls `close`; `lease` is the token where flock is missing."""

    path: Path
    descriptor: int
    lease: str | None = None

    def is_ours(self) -> bool:
        """Whether nobody deleted or replaced the lock file, or (without flock) claimed it since.

        Raises:
            OSError: the volume does not answer; that says nothing about the lock.
        """
        if self.lease is not None:
            stored = _read_lease(self.path)
            return stored is not None and stored.token == self.lease
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    def close(self) -> None:
        """Let go. A lease that a child has taken over meanwhile (`lock_from`) stays the child's."""
        try:
            if self.lease is not None and self.is_ours():
                os.ftruncate(self.descriptor, 0)
        finally:
            os.close(self.descriptor)


def try_lock(path: Path) -> Lock | None:
    """Take the lock file for as long as this process lives; `None` when another process holds it.

    The descriptor is closed on exec; a process that forks without exec must close it in the child. Where the volume
    has no flock, the file names its holder instead. That excludes a second writer on this machine but for a moment's
    race, which `is_ours` shows; writers on other machines are only seen, by `is_ours` too.
    """
    descriptor = open_private(path, os.O_RDWR)
    lock = None
    try:
        lock = _claim(path, descriptor)
    finally:
        if lock is None:
            os.close(descriptor)
    return lock


def _claim(path: Path, descriptor: int) -> Lock | None:
    try:
        flocked = _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EACCES is how CIFS says that another has it
        return None
    lease = _read_lease(path)
    if lease is not None and is_alive(lease.identity):
        return None
    if flocked:
        os.ftruncate(descriptor, 0)  # the lease of a dead process that saw this volume without flock
        lock = Lock(path, descriptor)
    else:
        lock = Lock(path, descriptor, _write_lease(descriptor))
        time.sleep(_SETTLE_SECONDS)  # of two that found it free, the last to write has it
    return lock if lock.is_ours() else None


def lock_from(descriptor: int) -> Lock:
    """Adopt the lock whose descriptor this process got from its parent over exec; it goes no further by itself.

    Without flock the lease is taken over from the parent, whose own `Lock` then is no longer `is_ours`.

    Raises:
        BlockingIOError: the descriptor holds no lock, and another process does.
        OSError: it is no open file.
    """
    os.set_inheritable(descriptor, False)
    path = _path_of(descriptor)
    if _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):  # nothing changes where the parent has locked it
        return Lock(path, descriptor)
    return Lock(path, descriptor, _write_lease(descriptor))


def _flock(descriptor: int, operation: int) -> bool:
    """Whether the volume has flock at all; waiting or raising BlockingIOError is up to the operation."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in NO_FLOCK:
            return False
        raise
    return True


def _path_of(descriptor: int) -> Path:
    """The file's path; one that is deleted has a path at which there is nothing."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def _read_lease(path: Path) -> Lease | None:
    """The lease in a lock file; `None` where there is none, or only what a crash left of one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lease)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def _write_lease(descriptor: int) -> str:
    token = secrets.token_hex(16)
    data = msgspec.json.encode(Lease(this_process(), token))
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    sync_open(descriptor)
    return token


@contextlib.contextmanager
def wait_lock(path: Path) -> Iterator[None]:
    """Hold the lock file inside the block, waiting for whoever has it now.

    Without flock the block runs unprotected: only the list of roots relies on this, and it can be noted again.
    """
    descriptor = open_private(path, os.O_RDWR)
    try:
        _flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
