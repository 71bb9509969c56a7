"""Where rows come from: files of known kinds, folders of them, data sets on the hub."""

from collections.abc import Iterator
from pathlib import Path

from .blocks import Place, blocks, parsed
from .folders import listed
from .raw_rows import Bad, Row

__all__ = ["Place", "Row", "files_at", "read_rows"]


def files_at(path: Path) -> tuple[Path, ...]:
    """The file, or all files of known kinds in the folder: see `listed`, which raises the same."""
    return listed(path).files


def read_rows(place: Place, *, encoding: str | None = None) -> Iterator[Row]:
    """All rows of a file or of a data set on the hub, in bounded memory.

    Raises:
        DataError: see `blocks`; also for the first row that cannot be read.
    """
    for block in blocks([place], encoding=encoding):
        for row in parsed(block):
            if isinstance(row, Bad):
                raise row.error()
            yield row
