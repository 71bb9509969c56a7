"""Where rows come from: files of known kinds, folders of them, data sets on the hub."""

from collections.abc import Iterator
from pathlib import Path

from ftui.engine.data import hub_rows, jsons, tables
from ftui.engine.data.hub_rows import HubRows
from ftui.engine.data.rows import Row
from ftui.engine.data.streams import KINDS, PACKED, kind_of, opened
from ftui.errors import DataError

Place = Path | HubRows

__all__ = ["Place", "Row", "files_at", "read_rows"]


def files_at(path: Path) -> tuple[Path, ...]:
    """The file, or all files of known kinds in the folder and the folders in it, in the order of their names.

    Raises:
        DataError: a folder without one.
    """
    if not path.is_dir():
        return (path,)
    found = [p for p in path.rglob("*") if kind_of(p) and not _hidden(p.relative_to(path)) and p.is_file()]
    if not found:
        raise DataError(f"There is no file of rows in {path}.", hint=f"Rows are read from {_kinds()}.")
    return tuple(sorted(found, key=lambda p: p.relative_to(path).as_posix()))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _kinds() -> str:
    return f"{', '.join(KINDS)} files, also with {' or '.join(PACKED)} appended"


def read_rows(place: Place) -> Iterator[Row]:
    """All rows of a file or of a data set on the hub.

    JSON lines, tables and data sets of the hub are read as they come, in bounded memory; a text file is one row, and
    it and a JSON list are held as a whole.

    Raises:
        DataError: the file is missing, damaged, empty, of an unknown kind, not UTF-8, or a row is no object.
    """
    if isinstance(place, HubRows):
        yield from hub_rows.read(place)
        return
    if kind_of(place) is None:
        raise DataError(f"{place}: unknown kind of file.", hint=f"Rows are read from {_kinds()}.")
    empty = True
    for row in _file_rows(place):
        empty = False
        yield row
    if empty:
        raise DataError(f"There are no rows in {place}.")


def _file_rows(path: Path) -> Iterator[Row]:
    with opened(path) as stream:
        match kind_of(path):
            case ".jsonl":
                yield from jsons.lines(path, stream)
            case ".json":
                yield from jsons.array(path, stream)
            case ".csv":
                yield from tables.csv_rows(path, stream)
            case ".tsv":
                yield from tables.csv_rows(path, stream, delimiter="\t")
            case ".parquet":
                yield from tables.parquet_rows(path, stream)
            case _:
                text = jsons.text_of(path, 1, stream.read().removeprefix(jsons.BOM))
                if text.strip():
                    yield Row(path, 1, {"text": text})
