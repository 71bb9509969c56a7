"""A row and the place it came from, so that a bad one can be named: file, line, reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftui.errors import DataError


@dataclass(frozen=True)
class Row:
    """One object of named values (from a text file `{"text": ...}`) and its place.

    `place` counts from 1: the line on which the row begins or, where a file has no lines, the row (`unit`). A row of
    the hub has the data set's id for a path.
    """

    path: Path
    place: int
    value: dict[str, Any]
    unit: str = "line"

    def error(self, reason: str, hint: str = "") -> DataError:
        return DataError(f"{self.path}, {self.unit} {self.place}: {reason}.", hint=hint)


def row_of(path: Path, place: int, value: Any, unit: str = "line") -> Row:
    """Raises `DataError` where the value is no object."""
    if not isinstance(value, dict):
        raise Row(path, place, {}, unit).error(f"a JSON {_kind(value)}, not an object")
    return Row(path, place, value, unit)


def _kind(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
