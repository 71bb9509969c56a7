"""What columns, keys and speakers are called in the rows of one source, where not as the forms call them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ..files.raw_rows import Row

OF_TURNS = ("role", "content")
MAY_BE_EMPTY = ("messages", "conversations", "chosen", "rejected", "input_ids")


@dataclass(frozen=True)
class ColumnNames:
    """`columns`: the form's name of a column -> the one it has here; `role` and `content` are those of a turn's keys.

    A column called "" here is not read.
    `roles`: what a speaker is called here -> system, user, assistant, tool or function_call.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.columns.items())), tuple(sorted(self.roles.items()))))


STANDARD_NAMES = ColumnNames()
"""Everything is called as the forms call it."""


def nearest_name_hint(wanted: str | None, there: Iterable[str]) -> str:
    """A hint: what may have been meant by a name that is not there."""
    close = get_close_matches(wanted or "", list(there), n=1, cutoff=0.6)
    return f"Is {close[0]!r} meant?" if close else ""


def rename_columns(row: Row, shape: ColumnNames) -> Row:
    """The row with its columns called as the forms call them. Those that lend their place to another are gone."""
    columns = _of_rows(shape)
    if not columns:
        return row
    kept = {name: value for name, value in row.value.items() if name not in columns and name not in columns.values()}
    renamed = {ours: row.value[theirs] for ours, theirs in columns.items() if theirs and theirs in row.value}
    return row.with_value(kept | renamed)


def match_form(row: Row, signs: Mapping[str, Collection[str]]) -> str | None:
    """The first of these forms whose columns the row has; `None` for none.

    Tables that were put together have a column for turns or tokens in all their rows: where its cell is empty, the row
    has another form, if there is one.
    """
    full = {name for name, value in row.value.items() if value or name not in MAY_BE_EMPTY}
    for there in (full, row.value.keys()):
        if (found := next((form for form, needed in signs.items() if there >= set(needed)), None)) is not None:
            return found
    return None


def missing_columns(there: Collection[str], shape: ColumnNames) -> list[str]:
    """In words, each column of the mapping that is not `there`."""
    names = ", ".join(map(repr, there)) or "(none)"
    absent = [(ours, theirs) for ours, theirs in _of_rows(shape).items() if theirs and theirs not in there]
    return [
        " ".join(
            filter(
                None,
                (
                    f"data.columns.{ours} is {theirs!r}{f'; there are {names}' if not number else ''}.",
                    nearest_name_hint(theirs, there),
                ),
            )
        )
        for number, (ours, theirs) in enumerate(absent)
    ]


def _of_rows(shape: ColumnNames) -> dict[str, str]:
    return {ours: theirs for ours, theirs in shape.columns.items() if ours not in OF_TURNS}
