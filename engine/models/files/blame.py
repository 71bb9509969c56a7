"""Errors that a library raises over what a file holds, told as the fault of that file."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ftui.errors import FtuiError, ModelError
from ftui.models.safetensors_header import fetch_again
from ftui.system.volume import is_disk_full


@contextmanager
def blame(file: Path, what: str) -> Iterator[None]:
    """A block in which a library makes something of a model's file, or of a folder of them.

    Wrong values in a file end in any exception, so all are taken for its fault but those that are of the machine.

    Raises:
        ModelError: `file` "cannot be `what`", with the library's words and the way to fetch the file again.
    """
    try:
        yield
    except FtuiError:
        raise
    except Exception as error:
        from ...system.memory import first_line, is_out_of_memory  # they bring torch, which some processes do without

        if is_out_of_memory(error) or is_disk_full(error) or getattr(error, "errno", None) == errno.EIO:
            raise
        words = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"{file} cannot be {what} ({words}).", hint=fetch_again(file)) from error
