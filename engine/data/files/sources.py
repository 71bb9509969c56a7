"""Where rows come from: files of known kinds, folders of them, data sets on the hub."""

from collections.abc import Iterator
from pathlib import Path

from .blocks import Place, parse_block, read_blocks
from .folders import list_files
from .raw_rows import BadRow, Row

__all__ = ["Place", "Row", "files_at", "read_rows"]


def files_at(path: Path) -> tuple[Path, ...]:
    """The file, or all files of known kinds in the folder: see `listed`, which raises the same."""
    return list_files(path).files


def read_rows(place: Place, *, encoding: str | None = None) -> Iterator[Row]:
    """All rows of a file or of a data set on the hub, in bounded memory.

    Raises:
        DataError: see `blocks`; also for the first row that cannot be read.
    """
    for block in read_blocks([place], encoding=encoding):
        for row in parse_block(block):
            if isinstance(row, BadRow):
                raise row.error()
            yield row
