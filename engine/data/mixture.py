"""The profile's sources found: which files or data sets, in which form, with which weight."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ftui.engine.data.cache import tokenised
from ftui.engine.data.encode import Encoder
from ftui.engine.data.formats import detect, to_example
from ftui.engine.data.sequences import Sequences, joined
from ftui.engine.data.sources import Place, files_at, read_rows
from ftui.profile.data import Source


@dataclass(frozen=True)
class Found:
    """One source. `places` are read one after another; `form` is what its rows are taken for."""

    name: str
    places: tuple[Place, ...]
    form: str
    weight: float


def find(sources: Iterable[Source], form: str, report: Callable[[str], None]) -> list[Found]:
    """All sources, those of the hub fetched.

    Raises:
        DataError, DiskError: a folder without files of rows; see `hub_rows.fetched`.
    """
    return [Found(one.path, _places(one, report), one.format or form, one.weight) for one in sources]


def _places(source: Source, report: Callable[[str], None]) -> tuple[Place, ...]:
    path = Path(source.path)
    if path.is_absolute():
        return files_at(path)
    from ftui.engine.data.hub_rows import fetched

    report(f"fetching {source.path}")
    return (fetched(source.path, source.subset, source.split, source.revision),)


def sequences_of(found: Iterable[Found], encoder: Encoder, cache: Path, report: Callable[[int], None]) -> Sequences:
    """All sources tokenised, each with a cache entry of its own; `report` is told the rows read of all together.

    Raises:
        DataError: see `tokenised`.
    """
    parts: list[Sequences] = []
    for source in found:
        before = sum(part.counts.num_rows for part in parts)
        tick = _counting(report, before)
        parts.append(tokenised(source.places, source.form, encoder, cache, tick))
    return joined(parts)


def _counting(report: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda num_rows: report(before + num_rows)


def texts_in(places: Iterable[Place], form: str) -> Iterator[str]:
    """What is said in the rows, for a tokenizer to learn from.

    Raises:
        DataError: see `read_rows` and `to_example`.
    """
    for place in places:
        its_form = form
        for row in read_rows(place):
            its_form = detect(row) if its_form == "auto" else its_form
            example = to_example(row, its_form)
            yield from (str(part) for part in vars(example).values() if isinstance(part, str))
            for message in getattr(example, "messages", ()):
                yield str(message.get("content") or "")
