"""What the model can take: how many positions it has, and how many tokens it knows."""

from dataclasses import dataclass

import numpy as np

from ftui.profile.schema import Profile

from ...data.load_rows import LoadedData
from ...models.load_model import read_config
from ...system.distinct import distinct

_CHUNK = 1 << 20  # ids that are looked at together


@dataclass(frozen=True)
class Limits:
    """`None` where it is not known: the model is made to measure."""

    positions: int | None
    vocabulary: int | None


def limits_of(read: LoadedData, profile: Profile) -> Limits:
    """New special tokens get room of their own (models/special_tokens.py)."""
    if read.folder is None:
        return Limits(read.longest, len(read.tokenizer))
    config = read_config(read.folder, trusted=profile.model.trust_remote_code).get_text_config()
    size = getattr(config, "vocab_size", None)
    if size is not None and read.new_token_ids:
        size = max(size, len(read.tokenizer))
    return Limits(read.longest, size)


def rows_outside_vocabulary(read: LoadedData, limits: Limits) -> np.ndarray:
    """The rows (numbers over all that are trained on) with a token that the model does not have.

    Only where the tokenizer knows more than the model, or rows came as tokens, there can be any.
    """
    size, first, rows = limits.vocabulary, 0, [np.zeros(0, dtype=np.int64)]
    for store in read.stores:
        if size is not None and (len(read.tokenizer) > size or "tokenized" in store.counts.forms):
            for start in range(0, len(store.ids), _CHUNK):
                ids = store.ids[start : start + _CHUNK]
                places = np.flatnonzero((ids >= size) | (ids < 0)) + start
                sequences = np.searchsorted(store.starts, places, side="right") - 1
                rows.append(distinct(store.rows[sequences]) + first)
        first += len(store.facts)
    return distinct(np.concatenate(rows))
