"""All that findings are made of, and how one is made of rows that have it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from ftui.dataset.report import Example, Finding, Padding
from ftui.profile.schema import Profile

from ...data.load_rows import LoadedData
from ...data.stores.sequences import Sequences
from ...planning.plan import SourceShare
from .duplicates import Comparison, Matches
from .excerpts import make_excerpt
from .findings import make_finding
from .limits import Limits
from .row_index import RowIndex

EXAMPLES = 3


@dataclass(frozen=True)
class Examination:
    """What findings are made of. `seen` is all that is read at data.max_length, before any is set aside."""

    read: LoadedData
    profile: Profile
    limits: Limits
    rows: RowIndex
    num_trained: int
    seen: Sequences
    sameness: Comparison
    padding: Padding | None
    scripts: dict[str, int]
    shares: tuple[SourceShare, ...] = ()
    log_probs: np.ndarray | None = None


def make_example(examination: Examination, name: str, row: int, like: int | None = None) -> Example:
    """A row with what is wrong in it, and the one it is `like`."""
    excerpt = make_excerpt(examination.read.tokenizer, examination.rows, row, name)
    return Example(examination.rows.where(row), excerpt, None if like is None else examination.rows.where(like))


def row_finding(
    examination: Examination, name: str, rows: np.ndarray, total: int, detail: str = ""
) -> Iterator[Finding]:
    """The finding, where there are such rows (their numbers)."""
    if len(rows):
        examples = [make_example(examination, name, int(row)) for row in rows[:EXAMPLES]]
        yield make_finding(name, len(rows), total, examples, detail=detail)


def match_finding(examination: Examination, name: str, alike: Matches, total: int) -> Iterator[Finding]:
    """The finding about rows that are like others, where there are any."""
    if not alike.count:
        return
    examples = [make_example(examination, name, row, earlier) for row, earlier in alike.examples]
    yield make_finding(name, alike.count, total, examples, detail="at least" if alike.is_least else "")


def at_most_warning(finding: Finding) -> Finding:
    """The finding, an error as a warning."""
    return structs.replace(finding, severity="warning") if finding.severity == "error" else finding


def length_fix(examination: Examination, finding: Finding) -> str:
    """What to do about rows that are cut, with the length that would hold them, if the model sees so far."""
    longest = max(store.counts.longest for store in examination.read.stores)
    most = min(longest, examination.limits.positions or longest)
    if most <= examination.profile.data.max_length:
        return f"{finding.fix} The model sees no more tokens."
    reach = "holds all of them" if most == longest else "is all that the model sees"
    return f"{finding.fix} data.max_length = {most} {reach}."
