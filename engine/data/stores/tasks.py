"""The rows of a source as work to be done: blocks, each with the form of its file."""

from collections.abc import Iterator
from collections.abc import Sequence as Several

import msgspec
import numpy as np

from ftui.errors import DataError

from ..facts import scripts
from ..facts.row_facts import facts_of, trained_content
from ..files.blocks import RowBlock, parse_block, read_blocks
from ..files.raw_rows import BadRow, Row
from ..forms.detect_form import detect_form
from ..forms.examples import texts_of
from ..forms.formats import to_example
from ..sources import ResolvedSource
from ..tokens.encode import EncodedRow, Encoder
from .store import FILES, EncodedBlock, Skipped


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A block of rows, and the form they are taken for."""

    block: RowBlock
    form: str


def encode_block(task: Task, encoder: Encoder) -> EncodedBlock:
    """What the block gives to the store; rows that cannot be trained on are in `skipped`, in their order."""
    read = parse_block(task.block)
    rows = [row for row in read if isinstance(row, Row)]
    became = iter(encoder.encode_all(rows, task.form) if rows else ())
    good: list[tuple[Row, EncodedRow]] = []
    skipped: list[Skipped] = []
    for row in read:
        one = row if isinstance(row, BadRow) else next(became)
        if isinstance(row, Row) and isinstance(one, EncodedRow):
            good.append((row, one))
        else:
            skipped.append(as_skipped(row, one.error() if isinstance(one, BadRow) else one))
    return _as_bytes(task.block, good, skipped)


def as_skipped(row: Row | BadRow, error: object) -> Skipped:
    """A row that is left out, and why: `error` is a DataError."""
    assert isinstance(error, DataError)
    reason = row.reason if isinstance(row, BadRow) else error.message.removeprefix(f"{row.where}: ").removesuffix(".")
    return Skipped(row.where, reason, error.message, error.hint)


def _as_bytes(block: RowBlock, good: list[tuple[Row, EncodedRow]], skipped: list[Skipped]) -> EncodedBlock:
    rows, encoded = [row for row, _ in good], [one for _, one in good]
    said = [trained_content(one) for one in encoded]
    facts = facts_of(encoded, said)
    offsets = dict(zip(block.places, block.offsets, strict=True))
    facts["file"] = block.file
    facts["place"] = [row.place for row in rows]
    facts["offset"] = [offsets[row.place] for row in rows]
    sequences = [(number, sequence) for number, one in enumerate(encoded) for sequence in one.sequences]
    files = {
        "ids.bin": _together([s.input_ids for _, s in sequences], "ids.bin"),
        "targets.bin": _together([s.targets for _, s in sequences], "targets.bin"),
        "lengths.bin": _bytes([len(s.input_ids) for _, s in sequences], "lengths.bin"),
        "num_targets.bin": _bytes([s.num_targets for _, s in sequences], "num_targets.bin"),
        "rows.bin": _bytes([number for number, _ in sequences], "rows.bin"),
        "labels.bin": _bytes([s.label for _, s in sequences], "labels.bin"),
        "margins.bin": _bytes([s.margin for _, s in sequences], "margins.bin"),
        "facts.bin": facts.tobytes(),
    }
    return EncodedBlock(
        num_rows=len(good), files=files, skipped=skipped, scripts=scripts.count_scripts([its.text for its in said])
    )


def _together(arrays: Several[np.ndarray], name: str) -> bytes:
    return np.concatenate(arrays).astype(FILES[name], copy=False).tobytes() if arrays else b""


def _bytes(numbers: Several[float], name: str) -> bytes:
    return np.array(numbers, dtype=FILES[name]).tobytes()


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
        detected = detect_form(rows, self._source.shape, self._source.form)
        if self._source.takes_pairs and not detected.confidence:
            pairs = detect_form(rows, self._source.shape, "preference")
            detected = pairs if pairs.confidence else detected
        detected.checked()
        self.confidence = min(self.confidence, detected.confidence)
        self.unused += [name for name in detected.unused if name not in self.unused]
        return detected.form


def texts_in(source: ResolvedSource, *, skips: bool = False) -> Iterator[str]:
    """The texts of the rows, to train a tokenizer on; with `skips` those are left out that cannot be read.

    Raises:
        DataError: a row that cannot be read, or has another form.
    """
    for task in Tasks(source):
        for row in parse_block(task.block):
            try:
                if not isinstance(row, Row):
                    raise row.error()
                example = to_example(row, task.form, source.shape)
            except DataError:
                if skips:
                    continue
                raise
            yield from texts_of(example)
