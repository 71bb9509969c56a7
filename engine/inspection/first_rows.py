"""The first rows of a profile's training data, before the others are read: in a time that does not grow with them."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from ftui.dataset.row import RowView
from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..data.facts.row_facts import facts_of, trained_content
from ..data.files.blocks import parse_block
from ..data.files.raw_rows import Row
from ..data.files.streams import kind_of
from ..data.load_rows import LoadedEncoder, load_encoder
from ..data.sources import ResolvedSource, find_sources
from ..data.stores.tasks import Task, Tasks
from ..data.tokens.encode import Encoder
from ..services.profile_text import given_profile
from .row_tokens import LoadedRow, count_parts, make_row_view

LONGEST = 1 << 18  # bytes of rows that are tokenised for it: a text of many MiB may be one row

_open_encoders: dict[str, LoadedEncoder] = {}


def take_encoder(profile: str) -> LoadedEncoder | None:
    """What the rows that are shown first were encoded with, for whoever reads the others."""
    return _open_encoders.pop(profile, None)


def view_first_rows(profile: str, number: int, tell: Callable[[str], None]) -> list[RowView]:
    """The first parts of the first rows of the first source, `number` at most.

    Rows that cannot be trained on are left out here: whoever reads all of them says what is wrong. There are none where
    the tokenizer is made of all rows, where the first ones are texts of more than 256 KiB, or where there is but one, a
    text of several parts: those are shown one after the other.

    Raises:
        FtuiError: the profile, its model's tokenizer or its files are wrong, as reading all of them would say.
    """
    resolved = given_profile(profile)
    scratch = resolved.model.from_scratch
    if scratch is not None and scratch.tokenizer is None:
        return []
    with tempfile.TemporaryDirectory() as fallback:
        cache = cache_folder(Path(fallback))
        source, *others = find_sources(resolved.data, tell, stage=resolved.run.stage)
        loaded = load_encoder(resolved, [source, *others], cache, tell, weights=False)
    _open_encoders.clear()
    _open_encoders[profile] = loaded
    rows: list[LoadedRow] = []
    for task in Tasks(source):
        rows += _rows(resolved, source, task, replace(loaded.encoder, shape=source.shape), len(rows), number)
        if len(rows) >= number or sum(map(len, task.block.texts)) > LONGEST:
            break
    if len(rows) == 1 < count_parts(rows[0]):
        return []
    return [structs.replace(make_row_view(row, 0), num_first=len(rows)) for row in rows]


def _rows(
    profile: Profile, source: ResolvedSource, task: Task, encoder: Encoder, before: int, number: int
) -> Iterator[LoadedRow]:
    block, size = task.block, 0
    texts = dict(zip(block.places, block.texts, strict=True))
    for row in parse_block(block):
        if not isinstance(row, Row):
            continue
        if before == number:
            return
        size += len(texts[row.place])
        if size > LONGEST:
            return
        (one,) = encoder.encode_all([row], task.form)
        if isinstance(one, DataError):
            continue
        (fact,) = facts_of([one], [trained_content(one)])
        yield LoadedRow(
            number=before, num_rows=0, source=source.name, form=task.form, row=row, where=row.where,
            raw=texts[row.place].decode(), flags=int(fact["flags"]), sequences=one.sequences, encoder=encoder,
            max_length=profile.data.max_length, is_plain=kind_of(row.path) == ".txt",
        )  # fmt: skip
        before += 1
