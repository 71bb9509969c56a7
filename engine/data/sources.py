"""What each entry of data.train or data.eval holds: which files or data set, in which form, with which weight."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import DataError
from ftui.profile.sections.data import DataSection, DataSource, sources
from ftui.profile.sections.preference import PAIR_STAGES, VERDICT_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES

from .files.blocks import Place
from .files.dataset_info import resolve_entry
from .files.folders import list_files
from .forms.column_names import STANDARD_NAMES, ColumnNames


@dataclass(frozen=True)
class ResolvedSource:
    """One source of rows. `places` are read one after another; `form` is what their rows are taken for.

    `weight` or `num_samples` say how often its rows come in an epoch, `encoding` how text files that are not UTF-8 are
    read. `notes` are what a person should know of files that are not read. `takes_pairs`: files without a verdict in
    them may have pairs, each of which is two.
    """

    name: str
    places: tuple[Place, ...]
    form: str
    weight: float = 1.0
    shape: ColumnNames = STANDARD_NAMES
    encoding: str | None = None
    num_samples: int | None = None
    notes: tuple[str, ...] = ()
    takes_pairs: bool = False


def find_sources(
    section: DataSection, report: Callable[[str], None], *, stage: str = "sft", evaluation: bool = False
) -> list[ResolvedSource]:
    """All sources of data.train (or of data.eval), those of the hub fetched.

    But in stage `pretrain`, text files that lie in a folder beside files of rows (licences, lists of requirements) are
    left out.

    Raises:
        DataError, DiskError: see `list_files` and `fetch_dataset`.
    """
    return [
        _resolve_source(source, section, stage, report, evaluation=evaluation)
        for source in sources(section.eval if evaluation else section.train)
    ]


def _resolve_source(
    source: DataSource, section: DataSection, stage: str, report: Callable[[str], None], *, evaluation: bool
) -> ResolvedSource:
    """What a source says itself comes before what holds for all."""
    source = resolve_entry(source)
    form = source.format or section.format
    takes_pairs = form == "auto" and stage in VERDICT_STAGES
    if form == "auto":  # such a stage trains on nothing else
        form = "preference" if stage in PAIR_STAGES else "kto" if stage in VERDICT_STAGES else form
        form = "prompt" if stage in POLICY_STAGES else form
    rows_only = stage != "pretrain" and form != "text"
    places, notes = _list_places(source, report, rows_only=rows_only, evaluation=evaluation)
    return ResolvedSource(
        source.path,
        places,
        form,
        source.weight,
        ColumnNames(section.columns | source.columns, section.roles | source.roles),
        source.encoding or section.encoding,
        source.num_samples,
        notes,
        takes_pairs,
    )


def _list_places(
    source: DataSource, report: Callable[[str], None], *, rows_only: bool, evaluation: bool
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """What is read of the source, and notes on what is not."""
    path = Path(source.path)
    if path.is_absolute():
        _refuse_hub_options(source, is_folder=path.is_dir())
        listing = list_files(path, rows_only=rows_only, split=source.split, subset=source.subset, evaluation=evaluation)
        return listing.files, listing.notes
    from .files.hub_dataset import fetch_dataset

    report(f"fetching {source.path}")
    return (fetch_dataset(source.path, source.subset, source.split, source.revision, evaluation=evaluation),), ()


def _refuse_hub_options(source: DataSource, *, is_folder: bool) -> None:
    """Raises `DataError` where a file here has a part named, or a folder a revision: only data sets have those."""
    keys = ("revision",) if is_folder else ("subset", "split", "revision")
    named = [key for key in keys if getattr(source, key) is not None]
    if named:
        raise DataError(
            f"{source.path}: {' and '.join(named)} {'is' if len(named) == 1 else 'are'} of a data set on the hub, and "
            f"this is {'a folder' if is_folder else 'a file, which is read whole'}.",
            hint=f"Leave {' and '.join(named)} out.",
        )
