"""What becomes of a block of rows: parsed, encoded and looked at. The same bytes in whatever process it is done."""

from collections.abc import Sequence as Several

import msgspec
import numpy as np

from ftui.errors import DataError

from ..facts import scripts
from ..facts.row_facts import facts_of, heard
from ..files.blocks import Block, parsed
from ..files.raw_rows import Bad, Row
from ..tokens.encode import Encoded, Encoder
from .store import FILES, Portion, Skipped


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A block of rows, and the form they are taken for."""

    block: Block
    form: str


def portion_of(task: Task, encoder: Encoder) -> Portion:
    """What the block gives to the store; rows that cannot be learned from are in `skipped`, in their order."""
    read = parsed(task.block)
    rows = [row for row in read if isinstance(row, Row)]
    became = iter(encoder.encode_all(rows, task.form) if rows else ())
    good: list[tuple[Row, Encoded]] = []
    skipped: list[Skipped] = []
    for row in read:
        one = row if isinstance(row, Bad) else next(became)
        if isinstance(row, Row) and isinstance(one, Encoded):
            good.append((row, one))
        else:
            skipped.append(_skipped(row, one.error() if isinstance(one, Bad) else one))
    return _portion(task.block, good, skipped)


def _skipped(row: Row | Bad, error: object) -> Skipped:
    assert isinstance(error, DataError)
    reason = row.reason if isinstance(row, Bad) else error.message.removeprefix(f"{row.where}: ").removesuffix(".")
    return Skipped(row.where, reason, error.message, error.hint)


def _portion(block: Block, good: list[tuple[Row, Encoded]], skipped: list[Skipped]) -> Portion:
    rows, encoded = [row for row, _ in good], [one for _, one in good]
    said = [heard(one.example) for one in encoded]
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
        "facts.bin": facts.tobytes(),
    }
    return Portion(num_rows=len(good), files=files, skipped=skipped, scripts=scripts.count([its.text for its in said]))


def _together(arrays: Several[np.ndarray], name: str) -> bytes:
    return np.concatenate(arrays).astype(FILES[name], copy=False).tobytes() if arrays else b""


def _bytes(numbers: list[int], name: str) -> bytes:
    return np.array(numbers, dtype=FILES[name]).tobytes()
