"""What the volume under a folder can do, and whether it has space: tried for real, since `df` and mount options lie."""

import errno
import fcntl
import mmap
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from ftui.errors import DiskError, DiskFullError
from ftui.system.files import PRIVATE_FOLDER, open_private, replace_file, sync_open, write_all
from ftui.units import size

RESERVE = 256 << 10
TRIAL = 1 << 20
_BLOCK = 4096
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_HIDDEN = re.compile(r"(?:os error |code: )(\d+)")
_FREE_SOME = "Free some space there, or let FTUI_RUNS name a folder on another volume."


def is_disk_full(error: BaseException) -> bool:
    """Whether more space would have helped: no space, a quota, or a limit on the size of files (RLIMIT_FSIZE).

    Knows libraries written in Rust, which hide the number in the text of an exception of their own (safetensors) or of
    a bare `Exception` (tokenizers).
    """
    return _number(error) in _FULL


def is_refused(error: BaseException) -> bool:
    """Whether the system has refused something, whatever library says so."""
    return _number(error) is not None


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    match = _HIDDEN.search(str(error))
    return int(match[1]) if match else None


def free_bytes(folder: Path) -> int | None:
    """Bytes free to this user on the volume of `folder`; `None` where it does not say (some network volumes)."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize if stat.f_blocks else None


def disk_error(error: Exception, what: str, folder: Path, num_bytes: int | None = None) -> DiskError:
    """The error to raise for a failed write: `what` says what could not be done, the rest is found out here.

    A DiskFullError where `is_disk_full`; it says what is free now and, if `num_bytes` is given, what is needed.
    """
    if isinstance(error, DiskError):
        return error
    number = _number(error)
    if number not in _FULL:
        reason = getattr(error, "strerror", None) or error
        return DiskError(f"{what}: {reason}.", hint="Check the volume, or let FTUI_RUNS name a folder on another one.")
    needed = "" if num_bytes is None else f", {size(num_bytes)} needed"
    if number == errno.EFBIG:
        message = f"{what}: a limit on the size of files is reached{needed}."
        return DiskFullError(message, hint="`ulimit -f unlimited` before the start lifts it.")
    space = f"{_describe_free(folder)} free{needed}"
    if number == errno.EDQUOT:
        message = f"{what}: your quota on the volume of {folder} is used up ({space}; the quota counts, not that)."
        return DiskFullError(message, hint=_FREE_SOME)
    return DiskFullError(f"{what}: the disk is full, {space} in {folder}.", hint=_FREE_SOME)


def _describe_free(folder: Path) -> str:
    try:
        return size(free_bytes(folder))
    except OSError:
        return size(None)


def check_room(folder: Path, num_bytes: int) -> None:
    """See that `num_bytes` can be written under `folder`: by what its volume reports, and by writing some (a quota).

    Raises:
        DiskFullError: not enough space, or none for this user.
        DiskError: the folder cannot be written to at all.
    """
    what = f"{folder} cannot take {size(num_bytes)}"
    try:
        free = free_bytes(folder)
        if free is not None and free < num_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write_and_remove(folder / f".trial-{os.urandom(4).hex()}", max(_BLOCK, min(TRIAL, num_bytes)))
    except OSError as error:
        raise disk_error(error, what, folder, num_bytes) from error


def _write_and_remove(path: Path, num_bytes: int) -> None:
    """Random bytes, pushed to the disk: a volume that compresses or delays would take anything else."""
    descriptor = open_private(path, os.O_WRONLY | os.O_EXCL)
    try:
        write_all(descriptor, os.urandom(num_bytes))
        sync_open(descriptor)
    finally:
        os.close(descriptor)
        path.unlink()


def make_reserve(path: Path, num_bytes: int = RESERVE) -> None:
    """Reserve some space in a file of random bytes, to be given back when the disk is full.

    Raises:
        DiskError: it cannot be written (a DiskFullError where there is no space for it).
    """
    try:
        if not path.exists() or path.stat().st_size != num_bytes:
            replace_file(path, os.urandom(num_bytes), durable=True)
    except OSError as error:
        raise disk_error(error, f"{path} could not be written", path.parent, num_bytes) from error


def release_reserve(path: Path) -> bool:
    """Give half of the space back, so that the journal can say that the disk is full; `False` where none was left.

    Half, since others take what is given back, too: what comes later (why the run has ended) finds room again.
    """
    try:
        half = path.stat().st_size // 2
        if half < _BLOCK:
            path.unlink()
            return True
        descriptor = open_private(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, half)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


class Volume(msgspec.Struct, frozen=True):
    """The file operations that work on a volume."""

    flock: bool
    rename: bool
    fsync: bool
    mmap: bool
    append: bool


def probe(folder: Path) -> Volume:
    """Try each thing ftui relies on in a private folder inside `folder`, which is gone afterwards.

    Raises:
        DiskError: nothing can be made there (a DiskFullError where there is no space to try).
    """
    place = folder / f".probe-{os.urandom(4).hex()}"
    try:
        place.mkdir(mode=PRIVATE_FOLDER)
        return Volume(
            flock=_works(_try_flock, place),
            rename=_works(_try_rename, place),
            fsync=_works(_try_fsync, place),
            mmap=_works(_try_mmap, place),
            append=_works(_try_append, place),
        )
    except OSError as error:
        raise disk_error(error, f"{folder} cannot be tried", folder) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _works(attempt: Callable[[Path], bool], place: Path) -> bool:
    """A full disk is no answer (it is raised), every other refusal is one."""
    try:
        return attempt(place)
    except OSError as error:
        if is_disk_full(error):
            raise
        return False


def _try_flock(place: Path) -> bool:
    """A second descriptor must be refused: some volumes say yes to everybody."""
    first, second = (open_private(place / "flock", os.O_RDWR) for _ in range(2))
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(first)
        os.close(second)
    return False


def _try_rename(place: Path) -> bool:
    old, new = place / "old", place / "new"
    old.mkdir(mode=PRIVATE_FOLDER)
    (old / "inside").write_bytes(b"whole")
    old.rename(new)
    return not old.exists() and (new / "inside").read_bytes() == b"whole"


def _try_fsync(place: Path) -> bool:
    (place / "fsync").write_bytes(b"x")
    for path in (place / "fsync", place):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True


def _try_mmap(place: Path) -> bool:
    data = os.urandom(_BLOCK)
    (place / "mmap").write_bytes(data)
    with (place / "mmap").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:] == data


def _try_append(place: Path) -> bool:
    """Two descriptors, in turns: what each writes must come after what the other wrote."""
    first, second = (open_private(place / "append", os.O_WRONLY | os.O_APPEND) for _ in range(2))
    try:
        for descriptor, data in ((first, b"1"), (second, b"2"), (first, b"3")):
            write_all(descriptor, data)
    finally:
        os.close(first)
        os.close(second)
    return (place / "append").read_bytes() == b"123"


def warnings(volume: Volume) -> list[str]:
    """A sentence for each operation that is missing: what it means for a run.

    Raises:
        DiskError: no appending, and so no journal: nothing can run there.
    """
    if not volume.append:
        raise DiskError(
            "This volume cannot append to files, so no run can be recorded on it.",
            hint="Let FTUI_RUNS name a folder on another volume.",
        )
    meanings = {
        "This volume has no locks (flock): a second writer of a run cannot be excluded, only seen.": volume.flock,
        "This volume cannot rename folders: checkpoints are committed by their manifest, written last.": volume.rename,
        "This volume has no fsync: a power cut can lose the newest checkpoint.": volume.fsync,
        "This volume has no mmap: files are read whole.": volume.mmap,
    }
    return [sentence for sentence, works in meanings.items() if not works]
