"""Files that no crash leaves half-written and no neighbour can read: folders 0700, files 0600, temp + rename, locks."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ftui.errors import DiskError
from ftui.system.process_id import Identity, is_alive, this_process

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
NO_FSYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})
NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_GONE = frozenset({errno.ENOENT, errno.ESTALE})
_SETTLE_SECONDS = 0.2
LONGEST_FILE = 16 << 20  # bytes of a record that is read whole
DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON may raise where a file does not hold what was written to it."""

T = TypeVar("T")
KINDS_OF_FILE = {
    stat.S_IFREG: "a plain file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnsafePathError(DiskError, OSError):
    """A file or folder of a run is something that writing there could harm: a link, a second name, a device ..."""


def make_private_folder(path: Path, *, inside: Path | None = None) -> Path:
    """Create `path` (0700 under any umask); parents that do not exist yet are made private too.

    Raises:
        UnsafePathError: a folder on the way from `inside` to `path` is a link, or no folder.
    """
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=PRIVATE_FOLDER)
                folder.chmod(PRIVATE_FOLDER)
        if inside is not None and inside in folder.parents:
            os.close(open_folder(folder, inside))
    return path


def open_folder(folder: Path, inside: Path | None = None) -> int:
    """A descriptor of a folder; no name on the way from `inside` to it may be a link.

    Raises:
        UnsafePathError: one is, or is no folder.
    """
    place = folder if inside is None else inside
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in folder.relative_to(place).parts:
        place, parent = place / part, descriptor
        try:
            descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _unsafe(place, "a folder", os.lstat(place)) from error
            raise
        finally:
            os.close(parent)
    return descriptor


def open_private(path: Path, flags: int) -> int:
    """Open (or create, 0600 under any umask) a file to be written; the descriptor is closed on exec.

    This is the one way to open a file of a run for writing. Nothing is changed before it is known to be a plain file
    of this user with no other name, so that nothing outside the run's folder can be reached through it.

    Raises:
        UnsafePathError: it is not.
    """
    assert not flags & os.O_TRUNC, "that would change the file before it is checked"
    folder = open_folder(path.parent)
    try:
        return _open_at(folder, path, flags)
    finally:
        os.close(folder)


def _open_at(folder: int, path: Path, flags: int) -> int:
    owner = os.fstat(folder).st_uid
    with contextlib.suppress(FileNotFoundError):  # opening a FIFO or a device may itself do something
        check_plain(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False), owner)
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path.name, flags, PRIVATE_FILE, dir_fd=folder)
    try:
        check_plain(path, os.fstat(descriptor), owner)
        os.fchmod(descriptor, PRIVATE_FILE)
        os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_plain(path: Path, found: os.stat_result, owner: int) -> None:
    """See that a file is one that may be written.

    `owner` is who its folder belongs to: on a network volume that need not be this user, whoever writes.

    Raises:
        UnsafePathError: it is a link, has a second name, belongs to somebody else, or is no file.
    """
    if not stat.S_ISREG(found.st_mode):
        raise _unsafe(path, "a plain file", found)
    if found.st_nlink > 1:
        raise UnsafePathError(
            f"{path} has a second name (a hard link): writing to it would change that file too.",
            hint=f"Make it a file of its own: cp '{path}' '{path}.own' && mv '{path}.own' '{path}'",
        )
    if found.st_uid not in (os.geteuid(), owner):
        raise UnsafePathError(f"{path} belongs to another user (uid {found.st_uid}).", hint="chown it, or remove it.")


def _unsafe(path: Path, expected: str, found: os.stat_result) -> UnsafePathError:
    what = KINDS_OF_FILE.get(stat.S_IFMT(found.st_mode), "something else")
    return UnsafePathError(
        f"{path} is {what} and should be {expected}: ftui writes nothing there.",
        hint=f"Remove it, or put {expected} in its place.",
    )


def open_plain(path: Path) -> int:
    """A descriptor for reading a plain file; never follows a link and never waits (a FIFO would, for ever).

    Raises:
        UnsafePathError: it is something else.
        FileNotFoundError: there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise _unsafe(path, "a plain file", os.lstat(path)) from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _unsafe(path, "a plain file", found)
    return descriptor


def read_plain(path: Path, longest: int = LONGEST_FILE) -> bytes:
    """The bytes of a plain file of a run: what a stranger's folder holds neither blocks a reader nor fills its memory.

    Raises:
        UnsafePathError: it is no plain file, or has more than `longest` bytes.
        OSError: it is missing, or cannot be read.
    """
    with open(open_plain(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > longest:
            raise UnsafePathError(
                f"{path} is longer than {longest >> 10} KiB: too long to be what ftui wrote.", hint="Remove it."
            )
        return file.read(longest + 1)


def read_json(path: Path, kind: type[T]) -> T:
    """A record in a file of its own. Raises as `read_plain`, and what is in `DAMAGED`."""
    return msgspec.json.decode(read_plain(path), type=kind)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; a signal or a full pipe may make one `os.write` short."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Put `data` at `path` in one move: a reader sees the old bytes or the new ones, never a mixture.

    A link at `path` is replaced, never followed. `durable` adds fsync of the file and its folder (a few ms on a local
    disk, more on a network volume).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    folder = open_folder(path.parent)
    try:
        with contextlib.suppress(FileNotFoundError):  # of a dead process that had this number
            os.unlink(temporary.name, dir_fd=folder)
        descriptor = _open_at(folder, temporary, os.O_WRONLY | os.O_EXCL)
        try:
            try:
                write_all(descriptor, data)
                if durable:
                    sync_open(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:  # on a full disk the half of a file would take the space of the next try
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary.name, dir_fd=folder)
            raise
        if durable:
            sync_open(folder)
    finally:
        os.close(folder)


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


class Lock(msgspec.Struct, frozen=True):
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
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self.descriptor))
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


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file now. A `try_lock` in the moment of this look may find it held."""
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return False
    try:
        _flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    lease = _read_lease(path)
    return lease is not None and is_alive(lease.identity)


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
        return read_json(path, Lease)
    except DAMAGED:
        return None
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def _write_lease(descriptor: int) -> str:
    token = os.urandom(16).hex()
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
