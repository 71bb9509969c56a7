"""Files that a person names (rows, templates, models): read wherever they lie, unless they might never end."""

import errno
import stat
from io import BufferedReader
from pathlib import Path

from ftui.system.files import KINDS_OF_FILE, LONGEST_FILE


class SpecialFileError(OSError):
    """What should be read is no regular file."""

    def __init__(self, path: Path, special: str) -> None:
        super().__init__(errno.EINVAL, f"it is {special}, not a regular file", str(path))


def open_input(path: Path) -> BufferedReader:
    """Open a file that a person names (rows, a template, a model's file) for reading; links are followed.

    Raises:
        SpecialFileError: a FIFO, a socket or a device, which might never end or never begin.
        OSError: it cannot be opened.
    """
    if special := name_special(path):  # opening a device may itself do something
        raise SpecialFileError(path, special)
    return path.open("rb")


def read_input(path: Path, longest: int = LONGEST_FILE) -> bytes:
    """The bytes of a file that a person names. Raises as `open_input`; also where it has more than `longest` bytes."""
    with open_input(path) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise OSError(errno.EFBIG, f"it is longer than {longest >> 20} MiB", str(path))
    return data


def name_special(path: Path) -> str:
    """What lies at a path where that is neither a file nor a folder ("a FIFO"); empty for these, and for nothing."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # whoever opens it says why
        return ""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    return KINDS_OF_FILE.get(stat.S_IFMT(mode), "something else")
