"""Rows of a file, one after another, for tests that need no store."""

from collections.abc import Iterator

from ftui.engine.data.files.blocks import Place, parse_block, read_blocks
from ftui.engine.data.files.raw_rows import Row


def read_rows(place: Place, *, encoding: str | None = None) -> Iterator[Row]:
    """All rows of a file or of a data set on the hub. Raises `DataError` for the first one that cannot be read."""
    for block in read_blocks([place], encoding=encoding):
        for row in parse_block(block):
            if not isinstance(row, Row):
                raise row.error()
            yield row
