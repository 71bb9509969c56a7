"""The rows that a model is evaluated on: where each stands, and what it asks of a model that answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ftui.dataset.report import RowLocation

from ..data.files.blocks import reread_row
from ..data.load_rows import DataSplit, LoadedData
from ..inspection.report.row_index import RowIndex
from .rows_to_answer import split_answer


@dataclass(frozen=True)
class RowQuestion:
    """Sequence `number` up to its last answer, as token ids, and that answer."""

    number: int
    prompt: Sequence[int]
    reference: str


@dataclass(frozen=True)
class EvaluatedRows:
    """Rows that were read, and the sequences `numbers` of them; one row may have given several.

    `split` is a part of the rows of data.train.
    """

    loaded: LoadedData
    split: DataSplit
    numbers: Sequence[int]
    max_length: int

    @cached_property
    def _index(self) -> RowIndex:
        return RowIndex(self.loaded.sources, self.loaded.stores)

    @property
    def longest_first(self) -> list[int]:
        """Batches of like lengths need the least padding, and the first one shows whether memory suffices."""
        lengths = self.split.lengths
        return sorted(self.numbers, key=lambda number: (-int(lengths[number]), number))

    @property
    def pad_id(self) -> int:
        """The token that fills rows; no loss sees it."""
        return int(self.loaded.tokenizer.pad_token_id or 0)

    def _row(self, number: int) -> int:
        return int(self.split.sequences.rows[self.split.indices[number]])

    def where(self, number: int) -> RowLocation:
        """Where the row of a sequence stands in its file."""
        return self._index.where(self._row(number))

    def raw_row(self, number: int) -> Mapping[str, Any]:
        """The row of a sequence as it stands in its file.

        Raises:
            DataError: the file has changed since it was tokenised.
        """
        number_of_source, local = self._index.place_of(self._row(number))
        source, fact = self.loaded.sources[number_of_source], self.loaded.stores[number_of_source].facts[local]
        place = source.places[int(fact["file"])]
        row, _ = reread_row(place, int(fact["place"]), int(fact["offset"]), encoding=source.encoding)
        return row.value

    def questions(self, stop_ids: Sequence[int]) -> list[RowQuestion]:
        """Those of all sequences that have one: see `split_answer`."""
        found = []
        for number in self.numbers:
            (sequence,) = self.split.example(number)
            if (parts := split_answer(sequence, stop_ids)) is not None:
                prompt, answer = parts
                text = str(self.loaded.tokenizer.decode(answer, skip_special_tokens=True)).strip()
                found.append(RowQuestion(number, prompt, text))
        return found
