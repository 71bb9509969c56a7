"""One source of rows as it was found: what mixture.py makes of an entry of data.train."""

from dataclasses import dataclass

from .files.sources import Place
from .forms.column_names import STANDARD_NAMES, ColumnNames


@dataclass(frozen=True)
class ResolvedSource:
    """`places` are read one after another; `form` is what their rows are taken for.

    `weight` or `num_samples` say how often its rows come in an epoch, `encoding` how text files that are not UTF-8 are
    read. `notes` are what a person should know of files that are not read.
    """

    name: str
    places: tuple[Place, ...]
    form: str
    weight: float = 1.0
    shape: ColumnNames = STANDARD_NAMES
    encoding: str | None = None
    num_samples: int | None = None
    notes: tuple[str, ...] = ()
