"""How many rows a profile has, guessed from the size of its files: at once, before anybody has read them."""

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ftui.dataset.row_counts import RowCounts
from ftui.errors import FtuiError
from ftui.models.bytes_per_token import bytes_per_token
from ftui.profile.schema import Profile
from ftui.profile.sections.data import sources
from ftui.system.files import open_plain

OF_LINES = (".jsonl", ".ndjson", ".csv", ".tsv")
SAMPLE = 1 << 20  # bytes at the beginning of a file whose lines are counted


class _Size(NamedTuple):
    num_rows: float
    num_bytes: int


def guess_rows(profile: Profile, vocab_size: int) -> RowCounts | None:
    """Rows, tokens and steps; the longest row is not known. `None` where that takes more than a look at the files:
    folders, the hub, other types than lines, sources that are mixed, curricula.

    Tokens are too many rather than too few: the names and signs of JSON are counted as text.
    """
    each, data, train = sources(profile.data.train), profile.data, profile.train
    if profile.curriculum or data.mixing_temperature or any(one.weight != 1.0 or one.num_samples for one in each):
        return None
    sizes = [_size_at(Path(one.path)) for one in each]
    num_rows = sum(size.num_rows for size in sizes if size is not None)
    if None in sizes or num_rows < 1:
        return None
    rows = max(1.0, num_rows * (1 - (data.eval_fraction or 0)) - (data.eval_num_rows or 0))
    per_token = bytes_per_token(vocab_size)
    each_row = sum(size.num_bytes for size in sizes if size is not None) / num_rows / per_token.usual
    is_split, pieces = profile.run.stage == "pretrain", each_row / data.max_length
    num_tokens = rows * (each_row if data.packing or is_split else min(each_row, data.max_length))
    sequences = max(1, math.ceil(rows * (pieces if data.packing else max(1.0, pieces) if is_split else 1.0)))
    batch = profile.effective_batch
    per_epoch = math.ceil(sequences / batch)
    return RowCounts(
        num_train_rows=round(rows), num_eval_rows=round(num_rows - rows), num_train_tokens=round(num_tokens),
        num_sequences=sequences, steps_per_epoch=per_epoch, effective_batch=batch,
        max_steps=train.max_steps or math.ceil((train.num_train_epochs or 1) * per_epoch), bytes_per_token=per_token,
    )  # fmt: skip


def _size_at(path: Path) -> _Size | None:
    if path.suffix.lower() not in OF_LINES:
        return None
    try:
        found = path.stat()
        return _size_of(path.resolve(), found.st_size, found.st_mtime_ns)
    except (OSError, ValueError, FtuiError):  # it is not there, is no plain file, or may not be read: a run says so
        return None


@lru_cache(maxsize=64)
def _size_of(path: Path, num_bytes: int, _changed: int) -> _Size:
    descriptor = open_plain(path)
    try:
        sample = os.pread(descriptor, SAMPLE, 0)
    finally:
        os.close(descriptor)
    has_header = path.suffix.lower() in (".csv", ".tsv")
    lines = sum(1 for line in sample.split(b"\n") if line.strip()) - has_header
    return _Size(lines if num_bytes <= SAMPLE else lines * num_bytes / max(1, len(sample)), num_bytes)
