"""The profile's sources found: which files or data sets, in which form, with which weight."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ftui.errors import DataError
from ftui.profile.sections.data import DataSection, DataSource, sources

from .files.blocks import parse_block
from .files.dataset_info import resolve_entry
from .files.folders import list_files
from .files.raw_rows import Row
from .files.sources import Place
from .forms.column_names import ColumnNames
from .forms.examples import texts_of
from .forms.formats import to_example
from .source import ResolvedSource
from .stores.tasks import Tasks

__all__ = ["ResolvedSource", "find_sources", "texts_in"]


def find_sources(
    section: DataSection, report: Callable[[str], None], *, stage: str = "sft", evaluation: bool = False
) -> list[ResolvedSource]:
    """All sources of data.train (or of data.eval), those of the hub fetched.

    In stage `sft` text files that lie in a folder beside files of rows (licences, lists of requirements) are left out.

    Raises:
        DataError, DiskError: a folder without files of rows, or of which a split is named; see `hub_rows.fetched`.
    """
    return [
        _resolve_source(one, section, stage, report) for one in sources(section.eval if evaluation else section.train)
    ]


def _resolve_source(
    source: DataSource, section: DataSection, stage: str, report: Callable[[str], None]
) -> ResolvedSource:
    """What a source says itself comes before what holds for all."""
    source = resolve_entry(source)
    form = source.format or section.format
    places, notes = _places(source, report, rows_only=stage == "sft" and form != "text")
    return ResolvedSource(
        source.path,
        places,
        form,
        source.weight,
        ColumnNames(section.columns | source.columns, section.roles | source.roles),
        source.encoding or section.encoding,
        source.num_samples,
        notes,
    )


def _places(
    source: DataSource, report: Callable[[str], None], *, rows_only: bool
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    path = Path(source.path)
    if path.is_absolute():
        _refuse_hub_options(source)
        found = list_files(path, rows_only=rows_only)
        return found.files, found.notes
    from .files.hub_dataset import fetch_dataset

    report(f"fetching {source.path}")
    return (fetch_dataset(source.path, source.subset, source.split, source.revision),), ()


def _refuse_hub_options(source: DataSource) -> None:
    """Raises `DataError` where a file or folder here has a part named that only a data set of the hub has."""
    named = [key for key in ("subset", "split", "revision") if getattr(source, key) is not None]
    if named:
        raise DataError(
            f"{source.path}: {' and '.join(named)} {'is' if len(named) == 1 else 'are'} of a data set on the hub, and "
            "this is a file or folder here, which is read whole.",
            hint=f"Leave {' and '.join(named)} out; to train on only some files of a folder, list them in data.train.",
        )


def texts_in(found: ResolvedSource, *, skips: bool = False) -> Iterator[str]:
    """The texts of the rows, to train a tokenizer on; with `skips` those are left out that cannot be read.

    Raises:
        DataError: a row that cannot be read, or has another form.
    """
    for task in Tasks(found):
        for row in parse_block(task.block):
            try:
                if not isinstance(row, Row):
                    raise row.error()
                example = to_example(row, task.form, found.shape)
            except DataError:
                if skips:
                    continue
                raise
            yield from texts_of(example)
