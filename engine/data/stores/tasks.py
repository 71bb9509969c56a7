"""The rows of a source as work to be done: blocks, each with the form of its file."""

from collections.abc import Iterator

from ..files.blocks import RowBlock, parse_block, read_blocks
from ..files.raw_rows import Row
from ..forms.detect_form import detect_form
from ..source import ResolvedSource
from .process_block import Task


class Tasks:
    """Iterated once. `forms` are those of the files so far, `confidence` that of the least sure of them.

    `unused` are columns that nobody reads.
    """

    def __init__(self, source: ResolvedSource) -> None:
        self._source = source
        self.forms: list[str] = []
        self.confidence = 1.0
        self.unused: list[str] = []
        self._unseen = set(range(len(source.places)))

    @property
    def empty(self) -> list[int]:
        """The numbers of the files of which no row was seen so far."""
        return sorted(self._unseen)

    def __iter__(self) -> Iterator[Task]:
        """Raises `DataError` where a file cannot be read, or its first rows have no form that can be trained on."""
        for block in read_blocks(self._source.places, encoding=self._source.encoding):
            self._unseen.discard(block.file)
            while len(self.forms) <= block.file:
                self.forms.append("")
            if not self.forms[block.file]:
                self.forms[block.file] = self._form(block)
            yield Task(block, self.forms[block.file])

    def _form(self, block: RowBlock) -> str:
        """By the first rows that can be read; none where there is none in this block."""
        rows = [row for row in parse_block(block) if isinstance(row, Row)]
        if not rows:
            return ""
        detected = detect_form(rows, self._source.shape, self._source.form).checked()
        self.confidence = min(self.confidence, detected.confidence)
        self.unused += [name for name in detected.unused if name not in self.unused]
        return detected.form
