"""Rows of a profile that have a text in them: looked for in their files, block by block, without parsing a row."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..data.files.blocks import RowBlock, read_blocks
from ..data.files.streams import printable

if TYPE_CHECKING:
    from .browser import RowBrowser


def find_rows(data: "RowBrowser", text: str, after: int, tell: Callable[[str], None]) -> Iterator[int]:
    """Their numbers: first what comes behind row `after`, then what comes before it and itself.

    Raises:
        FtuiError: a file cannot be read any more.
    """
    spellings = _spellings(text)
    files = [
        (source, file)
        for source, files_of_source in enumerate(data.read.sources)
        for file in range(len(files_of_source.places))
    ]
    source, local = data.rows.place_of(max(0, after))
    fact = data.read.stores[source].facts[local]
    start = files.index((source, int(fact["file"])))
    for source, file in files[start:]:
        yield from (number for number in _hits_in(data, source, file, spellings, tell) if number > after)
    for source, file in files[:start]:
        yield from _hits_in(data, source, file, spellings, tell)
    yield from (n for n in _hits_in(data, *files[start], spellings, tell, int(fact["place"])) if n <= after)


def _hits_in(
    data: "RowBrowser",
    source: int,
    file: int,
    spellings: Sequence[bytes],
    tell: Callable[[str], None],
    last: int | None = None,
) -> Iterator[int]:
    """The good rows of a file with one of these in them; as far as place `last`."""
    files = data.read.sources[source]
    if file in data.read.stores[source].counts.empty:
        return  # passed over, as when it was read
    tell(f"searching {printable(files.places[file])}")
    for block in read_blocks([files.places[file]], encoding=files.encoding):
        if last is not None and block.places and block.places[0] > last:
            return
        for place, offset in _places_with(block, spellings):
            if (number := data.number_at(source, file, place, offset)) is not None:
                yield number


def _spellings(text: str) -> list[bytes]:
    """As it may stand in JSON, whatever the case."""
    texts = [text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]]
    return [*dict.fromkeys(_folded(spelling.encode(errors="replace"), is_ascii=text.isascii()) for spelling in texts)]


def _places_with(block: RowBlock, spellings: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Place and offset of each."""
    is_ascii = all(spelling.isascii() for spelling in spellings)
    whole = _folded(b"\n".join(block.texts), is_ascii=is_ascii)
    if any(spelling in whole for spelling in spellings):
        for place, offset, text in zip(block.places, block.offsets, block.texts, strict=True):
            its = _folded(text, is_ascii=is_ascii)
            if any(spelling in its for spelling in spellings):
                yield place, offset


def _folded(text: bytes, *, is_ascii: bool) -> bytes:
    """In small letters; `is_ascii`: of what is sought, and then ASCII ones are enough and ten times faster."""
    return text.lower() if is_ascii else text.decode(errors="replace").casefold().encode(errors="replace")
