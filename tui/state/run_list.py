"""All runs as the list of them needs it: how each stands, its loss curve. Nothing is read twice in vain."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ftui.errors import UsageError
from ftui.runs.curves import read_loss
from ftui.runs.run_folder import Run, all_runs
from ftui.runs.status import Status, Watch, is_running, judge, list_order
from ftui.supervisor.spawn import ensure_supervised

from ..drawing.charts.spark import points_of, spark
from ..render.glyphs import Glyphs

FIND_SECONDS = 5.0  # looking for new runs walks all roots

Signature = tuple[tuple[int, int], ...]


class RunRow(msgspec.Struct):
    """A run, how it stands, when it was opened (Unix seconds; `None` where run.json is damaged)."""

    run: Run
    status: Status
    created: float | None
    watch: Watch
    signature: Signature
    drawn: tuple[str, str] = ("", "")
    drawn_from: tuple[object, ...] = ()

    @property
    def is_running(self) -> bool:
        return is_running(self.status)

    def loss_spark(self, width: int, glyphs: Glyphs) -> tuple[str, str]:
        """The loss as a spark; curves.json is read again only when it has changed, and what it held is not kept."""
        source = (*_stamp(self.run.curves), width, glyphs)
        if source != self.drawn_from:
            losses = read_loss(self.run)
            start = losses[0].first[0] - 1 if losses and losses[0].first else 0
            self.drawn_from, self.drawn = source, spark(points_of(losses), width, glyphs, start)
        return self.drawn


class RunList:
    """Call `look` about once a second. Living runs come first, then the others, newest first."""

    def __init__(self, find: Callable[[], list[Run]] = all_runs) -> None:
        self._find = find
        self._rows: dict[Path, RunRow] = {}
        self._next_find = 0.0
        self.rows: list[RunRow] = []

    def find_again(self) -> None:
        """Which runs there are has changed: the next look finds it."""
        self._next_find = 0.0

    def look(self) -> None:
        known = self._rows
        if time.monotonic() >= self._next_find:
            self._next_find = time.monotonic() + FIND_SECONDS
            runs = {run.folder: run for run in self._find()}
            self._rows = {folder: known.get(folder) or _opened(run) for folder, run in runs.items()}
        for folder, row in self._rows.items():
            if folder in known:
                _renew(row)
        self.rows = sorted(self._rows.values(), key=lambda row: list_order(row.run, row.status, row.created))


def _opened(run: Run) -> RunRow:
    signature = _signature(run)
    watch = Watch(run)
    watch.catch_up()
    status = ensure_supervised(run, judge(run, watch))
    try:
        created = run.read_facts().created
    except UsageError:
        created = None
    return RunRow(run, status, created, watch, signature)


def _renew(row: RunRow) -> None:
    """Judge again what lives or has changed; a run that has ended and is left alone costs four looks at the disk."""
    signature = _signature(row.run)
    if signature == row.signature and not row.is_running and row.status.state.phase != "queued":
        return
    row.signature = signature
    row.watch.read()
    row.status = ensure_supervised(row.run, judge(row.run, row.watch))


def _signature(run: Run) -> Signature:
    return tuple(_stamp(path) for path in (run.journal, run.metrics, run.supervisor_log, run.status))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = os.lstat(path)
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
