"""Rows for a person to look at: any row of a profile's training data as the model sees it, and the report on them.

What was opened for a profile stays until another one is asked about: the second question is answered at once.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ftui.dataset import report as data_report
from ftui.dataset.locations import matches_file
from ftui.dataset.report import RowLocation
from ftui.dataset.row import NOTHING_CUT, RowView
from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..data.files.blocks import Place, reread_row
from ..data.files.streams import kind_of, printable
from ..data.load_rows import LoadedData, load_data
from ..data.stores.store import Store
from ..services.profile_text import given_profile
from . import report as reports
from .first_rows import take_encoder
from .measured_reference import find_log_probs
from .report.row_index import RowIndex
from .row_tokens import MOST_CUT, LoadedRow, count_parts, find_part, make_row_view
from .search import find_rows

Report = Callable[[str], None]
NOT_CUT = f"{NOTHING_CUT}: none is longer than data.max_length = {{:,}}. This is the longest."
SPLIT = f"{NOTHING_CUT}: text is split into parts of data.max_length = {{:,}} tokens. This is the longest."


@dataclass(frozen=True)
class RowBrowser:
    """The training data of a profile. Rows are numbered from 0, source after source.

    `log_probs`: what the reference says of each sequence to train on (measured_reference.py), where it is measured.
    """

    profile: Profile
    read: LoadedData
    log_probs: np.ndarray | None = None
    _taken: dict[tuple[int, int], LoadedRow] = field(default_factory=dict)

    @cached_property
    def rows(self) -> RowIndex:
        return RowIndex(self.read.sources, self.read.stores)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, of all its sequences together, uncut."""
        begins, ends = self.rows.spans()
        return np.asarray(ends - begins)

    @cached_property
    def report(self) -> data_report.Report:
        return reports.make_report(self.read, self.profile, self.log_probs)

    def _combine_by_row(self, figure: Callable[[Store], Any], together: np.ufunc = np.add) -> np.ndarray:
        """A figure of each row (int64), put together from that of each of its sequences."""
        figures = np.zeros(len(self.rows), dtype=np.int64)
        for first, store in zip(self.rows.bounds, self.read.stores, strict=False):
            together.at(figures, np.asarray(store.rows) + first, figure(store))
        return figures

    @cached_property
    def longest_sequences(self) -> np.ndarray:
        """The longest sequence of each row: what is cut of it depends on that."""
        return self._combine_by_row(lambda store: np.asarray(store.lengths, dtype=np.int64), np.maximum)

    @cached_property
    def parts(self) -> np.ndarray:
        """In how many parts each row is seen (int64): sft sees a sequence at once, text is split."""
        size = self.profile.data.max_length
        if self.profile.run.stage != "pretrain":
            return np.asarray(np.maximum(self._combine_by_row(lambda store: 1), 1))
        parts = self._combine_by_row(lambda store: -(-np.asarray(store.lengths, dtype=np.int64) // size))
        return np.asarray(np.maximum(parts, 1))

    def any_part(self, seed: int) -> tuple[int, int]:
        """A row and a part of it; every part of all rows is as likely."""
        behind = np.cumsum(self.parts)
        at = int(np.random.default_rng(seed).integers(behind[-1]))
        number = int(np.searchsorted(behind, at, side="right"))
        return number, at - int(behind[number] - self.parts[number])

    @cached_property
    def shares(self) -> np.ndarray:
        """The trained share (0..1) of each row's tokens, cut as the model sees it; 0 of a row without tokens."""
        cut = self.profile.data.max_length if self.profile.run.stage != "pretrain" else np.iinfo(np.int32).max

        def num_trained(store: Store) -> np.ndarray:
            targets, long = np.array(store.num_targets), np.asarray(store.lengths) > cut
            targets[long] = store.count_trained(store.starts[long] + 1, store.starts[long] + cut)
            return targets

        num_seen = self._combine_by_row(lambda store: np.minimum(store.lengths, np.int32(cut)))
        return np.asarray(self._combine_by_row(num_trained) / np.maximum(num_seen, 1))

    @cached_property
    def orders(self) -> dict[str, np.ndarray]:
        """Rows in the order in which a jump leads to them."""
        return {
            "longest": np.argsort(-self.lengths, kind="stable"),
            "shortest": np.argsort(self.lengths, kind="stable"),
            "most_truncated": np.argsort(-self.longest_sequences, kind="stable"),
            "least_trained": np.argsort(self.shares, kind="stable"),
        }

    def number_at(self, source: int, file: int, place: int, offset: int | None = None) -> int | None:
        """The number of the row at that place of a file of a source; `None` for one that was left out.

        A line of many MiB is cut into several rows: they are told apart by the byte at which they begin.
        """
        facts = self.read.stores[source].facts
        first, last = np.searchsorted(facts["file"], file), np.searchsorted(facts["file"], file, side="right")
        at = int(first) + int(np.searchsorted(facts["place"][first:last], place))
        while offset is not None and at < last and facts["place"][at] == place and facts["offset"][at] != offset:
            at += 1
        return int(self.rows.bounds[source]) + at if at < last and facts["place"][at] == place else None

    def taken(self, number: int) -> LoadedRow:
        """A row read again, and what stands of it among the tokens."""
        source, local = self.rows.place_of(number)
        source_files, store = self.read.sources[source], self.read.stores[source]
        fact = store.facts[local]
        place = source_files.places[int(fact["file"])]
        key = (number, _stamp(place))
        if key in self._taken:  # the parts of a long text come one after the other: it is tokenised once
            return self._taken[key]
        row, raw = reread_row(place, int(fact["place"]), int(fact["offset"]), encoding=source_files.encoding)
        first, last = np.searchsorted(store.rows, local), np.searchsorted(store.rows, local, side="right")
        self._taken.clear()
        self._taken[key] = LoadedRow(
            number=number, num_rows=len(self.rows), source=source_files.name,
            form=store.counts.forms[int(fact["file"])],
            row=row, where=self.rows.where(number), raw=raw,
            flags=int(fact["flags"]),
            sequences=[store[index] for index in range(int(first), int(last))],
            encoder=replace(self.read.encoder, shape=source_files.shape), max_length=self.profile.data.max_length,
            is_plain=isinstance(place, Path) and kind_of(place) == ".txt", log_probs=self._log_probs_of(number),
        )  # fmt: skip
        return self._taken[key]

    def _log_probs_of(self, number: int) -> tuple[float, ...]:
        """Those of the answers of a row; none where one of them is not measured."""
        if self.log_probs is None:
            return ()
        rows = self.read.train.sequences.rows
        its = self.log_probs[np.searchsorted(rows, number) : np.searchsorted(rows, number, side="right")]
        return () if np.isnan(its).any() else tuple(its.tolist())


def _stamp(place: Place) -> int:
    """When a file was changed last, in ns; what is on the hub does not change."""
    try:
        return place.stat().st_mtime_ns if isinstance(place, Path) else 0
    except OSError:  # it is gone: reading it says so
        return 0


_open_browsers: dict[str, RowBrowser] = {}


def open_browser(profile: str, tell: Report) -> RowBrowser:
    """The data of a profile, read and tokenised where that was not done before.

    Raises:
        FtuiError: the profile, its model's tokenizer or its rows are wrong, or none of them is good.
    """
    if profile not in _open_browsers:
        _open_browsers.clear()
        resolved, loaded = given_profile(profile), take_encoder(profile)
        with tempfile.TemporaryDirectory() as fallback:
            cache = cache_folder(Path(fallback))
            read = load_data(resolved, cache, tell, weights=False, loaded=loaded)
            _open_browsers[profile] = RowBrowser(resolved, read, find_log_probs(resolved, read, cache, tell))
    return _open_browsers[profile]


# -- the questions


def browse_report(profile: str, tell: Report) -> data_report.Report:
    """Raises `FtuiError` as `opened` does."""
    data = open_browser(profile, tell)
    tell("looking for what is wrong")
    return data.report


def view_row(
    profile: str,
    jump: str,
    tell: Report,
    *,
    number: int = 0,
    part: int = 0,
    seed: int = 0,
    where: Any = None,
    most_cut: int = MOST_CUT,
) -> RowView:
    """A row, or one part of it.

    `jump` is `number` (that part of that row, the last one where it has fewer; or the row at the place `where`, whose
    file may be named by the end of its path),
    `next` or `previous` (from that row and part of it on), `random` (any part of any row, by the seed), or leads to the
    longest, shortest, most_truncated or least_trained (`number` = 1: the second of them ...). `most_cut` tokens beyond
    data.max_length are told.

    Raises:
        FtuiError: see `opened`; there is no row at that place, or its file has changed.
    """
    data = open_browser(profile, tell)
    if where is not None:
        return make_row_view(data.taken(_number_of(data, where["file"], where["number"])), 0)
    if jump in data.orders:
        row = data.taken(int(data.orders[jump][number % len(data.rows)]))
        longest = int(data.longest_sequences[row.number])
        words = SPLIT if data.profile.run.stage == "pretrain" else NOT_CUT if longest <= row.max_length else ""
        return make_row_view(row, 0, [words.format(row.max_length)] if jump == "most_truncated" and words else [])
    if jump == "random":
        number, part = data.any_part(seed)
        return make_row_view(data.taken(number), part)
    number = max(0, min(number, len(data.rows) - 1))
    if jump == "next":
        if part + 1 < count_parts(data.taken(number)):
            part += 1
        elif number + 1 < len(data.rows):
            number, part = number + 1, 0
    elif jump == "previous" and part:
        part -= 1
    elif jump == "previous" and number:
        number -= 1
        part = count_parts(data.taken(number)) - 1
    return make_row_view(data.taken(number), part, most_cut=most_cut)


def _number_of(data: RowBrowser, file: str, place: int) -> int:
    """Raises `DataError` where no row of the training data stands there, or the name is that of several files."""
    places = [
        (printable(path), source, number)
        for source, files in enumerate(data.read.sources)
        for number, path in enumerate(files.places)
    ]
    meant = [where for where in places if where[0] == file] or [
        where for where in places if matches_file(file, where[0])
    ]
    if len(names := sorted({name for name, _, _ in meant})) > 1:
        raise DataError(f"{file} may be {names[0]} or {names[1]}.", hint="Write more of its path.")
    for _, source, number in meant:
        if (at := data.number_at(source, number, place)) is not None:
            return at
    hint = "" if meant else "A place is FILE:LINE, as findings print it; no file of data.train is called so."
    raise DataError(f"{RowLocation(file, place)} is no row of data.train that is trained on.", hint=hint)


def search_rows(profile: str, text: str, after: int, tell: Report, part: int = 0) -> RowView | None:
    """What comes next behind part `part` of row `after` and has this text in it, whatever the case; then from the top.

    Parts of a row are told apart by what the model sees, rows by their text in the file.

    Raises:
        FtuiError: see `opened`; a file cannot be read any more.
    """
    data = open_browser(profile, tell)
    if 0 <= after < len(data.rows) and data.parts[after] > 1:
        here = data.taken(after)
        if (match := find_part(here, text, part + 1)) is not None:
            return make_row_view(here, match, sought=text)
    number = next(find_rows(data, text, after, tell), None)
    if number is None:
        return None
    row = data.taken(number)
    return make_row_view(row, find_part(row, text) or 0, sought=text)
