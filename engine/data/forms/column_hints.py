"""What to write in data.columns for rows of no known form: words that can be copied."""

from ftui.profile.sections.row_forms import COLUMNS
from ftui.text import cut, shown, toml_value

from ..files.raw_rows import Row
from .column_names import ColumnNames, missing_columns

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
