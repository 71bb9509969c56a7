"""The rows behind prompts: what was asked as a person wrote it, and the columns for whoever judges the answers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..data.files.blocks import reread_row
from ..data.forms.column_names import rename_columns
from ..data.forms.examples import Chat, Text
from ..data.forms.prompts import ASKED, prompt
from ..data.load_rows import DataSplit
from ..data.sources import ResolvedSource


class AskedRow(NamedTuple):
    """A row again: its number over all sources, its prompt as text or messages, and its other columns."""

    number: int
    prompt: str | list[dict[str, Any]]
    columns: dict[str, Any]

    @property
    def is_chat(self) -> bool:
        return not isinstance(self.prompt, str)


class AskedRows:
    """Reads the rows of examples of `split` again from their files."""

    def __init__(self, split: DataSplit, sources: Sequence[ResolvedSource]) -> None:
        self._split, self._sources = split, sources
        self._first_rows = [0]
        for store in split.sequences.stores:
            self._first_rows.append(self._first_rows[-1] + len(store.facts))

    def __getitem__(self, example: int) -> AskedRow:
        """Raises `DataError` where its file has changed."""
        number = int(self._split.sequences.rows[self._split.indices[example]])
        place = next(n for n, first in enumerate(self._first_rows[1:]) if number < first)
        source, store = self._sources[place], self._split.sequences.stores[place]
        fact = store.facts[number - self._first_rows[place]]
        file = source.places[int(fact["file"])]
        row, _ = reread_row(file, int(fact["place"]), int(fact["offset"]), encoding=source.encoding)
        named = rename_columns(row, source.shape)
        asked = prompt(named, source.shape)
        assert isinstance(asked, Chat | Text), "the other forms have answers"
        columns = {name: value for name, value in named.value.items() if name != ASKED}
        return AskedRow(number, asked.messages if isinstance(asked, Chat) else asked.text, columns)


def as_columns(rows: Sequence[AskedRow], times: int) -> dict[str, list[Any]]:
    """One list for each column that any of the rows has, `None` where a row does not; each row `times` in turn."""
    names = dict.fromkeys(name for row in rows for name in row.columns)
    return {name: [row.columns.get(name) for row in rows for _ in range(times)] for name in names}
