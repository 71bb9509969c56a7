"""The ledger of a run with the places of its rows, for commands and screens (ftui/helper/blame_facts.py)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from ftui.errors import FtuiError, UsageError
from ftui.helper.blame_facts import Course, CourseRow, LedgerRow, RowCourses, StepBlame
from ftui.runs.run_folder import Run

from ..inspection.browser import RowBrowser, open_browser
from .base_losses import read_base_losses
from .learning import row_courses, seen_before
from .ledger_file import HEAD, MAGIC, Ledger, read_ledger
from .spikes import Spike, explain_spike, largest_spike, step_losses

Report = Callable[[str], None]
NO_LEDGER = "A run records its rows while log.row_losses is true; in stages grpo and ppo see `ftui rollouts` instead."
Row = TypeVar("Row", LedgerRow, CourseRow)
DIGITS = HEAD - len(MAGIC)


@dataclass(frozen=True)
class _RowPlaces:
    """Where rows stand; without `browser` nowhere, and `notes` say why."""

    browser: RowBrowser | None
    notes: list[str]

    def name(self, row: Row, number: int) -> Row:
        """The row of sequence `number` with its place."""
        if self.browser is None:
            return row
        rows = self.browser.read.train.sequences.rows
        own = int(rows[number])
        first, last = np.searchsorted(rows, own), np.searchsorted(rows, own, side="right")
        step = self.browser.read.train.per_example
        return msgspec.structs.replace(
            row, where=self.browser.rows.where(own), part=(number - int(first)) // step + 1,
            num_parts=max(1, int(last - first) // step),
        )  # fmt: skip


def blame_step(on_detail: Report, profile: str, folder: str, step: int | None, most: int) -> StepBlame:
    """The rows behind a step, by default the one that stands out most; at most so many of them.

    Raises:
        UsageError: the run keeps no ledger, or has no such step.
    """
    ledger = _read(Run(Path(folder)))
    steps = step_losses(ledger)
    if step is None and (step := largest_spike(steps)) is None:
        raise UsageError(f"{Path(folder).name} has too few steps to tell which one stands out.", hint="Name a step.")
    if not len(ledger.at(step)):
        first, last = int(steps.steps[0]), int(steps.steps[-1])
        raise UsageError(f"The ledger has no rows of step {step}.", hint=f"It has those of steps {first} to {last}.")
    spike, places = explain_spike(ledger, steps, step), _find_places(profile, ledger, on_detail)
    base = None if places.browser is None else read_base_losses(Run(Path(folder)), places.browser.read.train)
    rows = [places.name(row, row.number) for row in _rows(ledger, step, spike, base, most)]
    return StepBlame(
        step=step, loss=_known(spike.loss), usual=spike.usual, noise=spike.noise, lasts=spike.lasts,
        verdict=spike.verdict, words=spike.words, num_rows=len(spike.order),
        counts_tokens=bool((ledger.at(step)["count"] > 1).any()), rows=rows, notes=places.notes,
    )  # fmt: skip


def _rows(ledger: Ledger, step: int, spike: Spike, base: "dict[int, float] | None", most: int) -> Iterable[LedgerRow]:
    rows, (before, steps) = ledger.at(step), seen_before(ledger, step)
    total = float(rows["loss"].sum(dtype=np.float64))
    for place in spike.order[:most]:
        row = rows[place]
        number, count, loss = int(row["number"]), int(row["count"]), float(row["loss"])
        yield LedgerRow(
            number=number, count=count, loss=_known(loss / max(1, count)),
            share=_known(loss / total) if total else None, before=_known(float(before[place])),
            before_step=int(steps[place]) or None, base=None if base is None else base.get(number),
        )  # fmt: skip


def list_courses(on_detail: Report, profile: str, folder: str, course: Course, most: int) -> RowCourses:
    """The rows that were never learned, forgotten, or learned at once.

    Raises:
        UsageError: the run keeps no ledger, or has not seen its rows twice.
    """
    ledger = _read(Run(Path(folder)))
    courses = row_courses(ledger)
    found, times = courses.find(course), int(courses.times.max())
    needed = {"never_learned": 2, "forgotten": 3, "learned_at_once": 1}[course]
    if times < needed:
        raise UsageError(
            f"{Path(folder).name} has seen each row at most {times} time(s); {needed} are needed to tell.",
            hint="Ask again after its next epoch.",
        )
    places, rows = _find_places(profile, ledger, on_detail), []
    for place in found[:most].tolist():
        number = int(courses.numbers[place])
        row = CourseRow(
            number=number, times=int(courses.times[place]), first=float(courses.first[place]),
            second=_known(float(courses.second[place])), best=float(courses.best[place]),
            last=float(courses.last[place]),
        )  # fmt: skip
        rows.append(places.name(row, number))
    return RowCourses(course, len(found), len(courses.numbers), times, rows, places.notes)


def _read(run: Run) -> Ledger:
    ledger = read_ledger(run.ledger)
    if not len(ledger.rows):
        raise UsageError(f"{run.name} has no row ledger.", hint=NO_LEDGER)
    return ledger


def _find_places(profile: str, ledger: Ledger, on_detail: Report) -> _RowPlaces:
    """Where rows that are gone or have changed since stood, nobody knows: they keep their numbers."""
    on_detail("reading where the rows stand")
    notes = [f"{ledger.num_damaged} damaged blocks of the ledger were left out"] if ledger.num_damaged else []
    try:
        browser = open_browser(profile, on_detail)
    except FtuiError as error:
        return _RowPlaces(None, [*notes, f"rows have no place, only the number of their sequence: {error.message}"])
    if browser.read.train.sequences.counts.fingerprint[:DIGITS] != ledger.fingerprint:
        why = "the data, or how they become tokens, are no longer those of the run"
        return _RowPlaces(None, [*notes, f"rows have no place, only the number of their sequence: {why}"])
    return _RowPlaces(browser, notes)


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
