"""What columns, keys and speakers are called in the rows of one source, where not as the forms call them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ftui.profile.sections.row_forms import COLUMNS
from ftui.text import cut, shown, toml_value

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


FORMS = "docs/data.md names the columns of every form."
SECOND = "the form's name stands first, then what the column is called here"
_OURS = frozenset().union(*COLUMNS.values())
LONGEST_NAME = 60  # columns of a name that is told
_INDEX = "__index_level_"  # a column that pandas adds to a parquet file


def column_list(row: Row) -> str:
    """The columns of the row as an error names them."""
    return (
        ", ".join(repr(cut(shown(name), LONGEST_NAME)) for name in row.value if not name.startswith(_INDEX)) or "(none)"
    )


def naming_hint(row: Row, shape: ColumnNames) -> str:
    """A hint: the mapping that was meant, or the one that may be wanted, judged by which columns hold text."""
    turned = {theirs: ours for ours, theirs in shape.columns.items() if ours in row.value and theirs in _OURS}
    if turned:
        return f"It is the other way round: {_as_toml(turned)}; {SECOND}."
    if absent := missing_columns(row.value, shape):
        return " ".join(absent)
    texts = [name for name, value in row.value.items() if isinstance(value, str) and len(value.split()) > 1]
    if not texts:
        return f"No column holds text of more than a word: is it the right file? {FORMS}"
    ours = ("text",) if len(texts) == 1 else ("question", "answer")
    guess = dict(zip(ours, (*texts[:1], *sorted(texts[1:], key=lambda name: -len(str(row.value[name])))), strict=False))
    return f"Say what they are, such as {_as_toml(guess)}: {SECOND}. {FORMS}"


def _as_toml(columns: dict[str, str]) -> str:
    return f"data.columns = {toml_value(columns)}"
