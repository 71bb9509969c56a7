"""A row and the place it came from, so that a bad one can be named: file, line, reason."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ftui.dataset.report import RowLocation
from ftui.errors import DataError

Unit = Literal["line", "row"]
Kinds = Mapping[str, Mapping[str, int]]
"""Of each column the kinds of value that the first rows of the file have in it, and the place each is seen at first."""


class RawRow(NamedTuple):
    """A row as JSON in UTF-8, not parsed yet.

    `place` as of a `Row`; `offset` is the byte at which it begins in the unpacked file, -1 where that means nothing;
    `line` and `column` are where it begins, where `place` is not that.
    """

    place: int
    offset: int
    text: bytes
    line: int = 0
    column: int = 1


class Row(msgspec.Struct, frozen=True):
    """One object of named values (from a text file `{"text": ...}`) and its place.

    `place` counts from 1: the line on which the row begins or, where a file has no lines, the row (`unit`). A row of
    the hub has the data set's id for a path.
    """

    path: Path
    place: int
    value: dict[str, Any]
    unit: Unit = "line"
    kinds: Kinds = {}

    @property
    def where(self) -> RowLocation:
        return RowLocation(str(self.path), self.place, self.unit)

    def with_value(self, value: dict[str, Any]) -> "Row":
        return Row(self.path, self.place, value, self.unit, self.kinds)

    def error(self, reason: str, hint: str = "") -> DataError:
        return DataError(f"{self.where}: {reason}.", hint=hint)

    def unlike(self, key: str) -> str:
        """Where the column has values of another kind than here, in words to end a reason with; else nothing."""
        here = kind_of_value(self.value.get(key))
        for kind, place in self.kinds.get(key, {}).items():
            if kind not in (here, "null") and place != self.place:
                return f" ({_a(here)} here, {_a(kind)} in {self.unit} {place})"
        return ""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read, and why.

    `column` counts characters from 1; `line` is that of the fault where it is known and not the row's place.
    """

    where: RowLocation
    reason: str
    hint: str = ""
    column: int | None = None
    excerpt: str = ""
    line: int | None = None

    def error(self) -> DataError:
        near = f" (near {self.excerpt!r})" if self.excerpt else ""
        return DataError(f"{self._place}: {self.reason}{near}.", hint=self.hint)

    def behind(self, line: int, column: int) -> "BadRow":
        """The same of a row that begins at this column of the line."""
        return replace(self, column=self.column + column - 1) if self.column and self.line == line else self

    @property
    def _place(self) -> str:
        column = f":{self.column}" if self.column else ""
        if self.where.unit == "line":
            return f"{self.where.file}:{self.line or self.where.number}{column}"
        line = f":{self.line}{column}" if self.line else ""
        return f"{self.where.file}{line}, row {self.where.number}"


def kind_of_value(value: Any) -> str:
    """What JSON calls it, and NaN."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return "NaN" if value != value else names.get(type(value), "number")


def _a(kind: str) -> str:
    return kind if kind in ("null", "NaN") else f"an {kind}" if kind == "object" else f"a {kind}"
