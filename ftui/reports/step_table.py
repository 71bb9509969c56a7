"""The steps of a run as CSV: a line each, as they count, with the evaluation at that step beside it."""

import csv
from collections.abc import Iterator, Sequence
from typing import TextIO

from ftui.reports.run_curves import RunCurves
from ftui.reports.run_record import RunRecord
from ftui.runs.events import EvaluationDone, Step
from ftui.runs.journal import Tail
from ftui.text import shown

COLUMNS = (
    "run", "attempt", "step", "time", "epoch", "loss", "learning_rate", "grad_norm", "num_tokens", "num_target_tokens",
    "tokens_per_second", "data_seconds", "forward_backward_seconds", "optimizer_seconds", "rest_seconds", "memory",
    "applied",
)  # fmt: skip
"""As metrics.jsonl calls them. Times are Unix seconds, losses nats a token, memory bytes; empty: not measured, or NaN.
"""
FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute what begins so


def write_table(records: Sequence[RunRecord], curves: Sequence[RunCurves], to: TextIO) -> None:
    """Head and lines of all runs, one run after the other.

    Raises:
        OSError: it cannot be written, or metrics.jsonl cannot be read.
    """
    both = list(zip(records, curves, strict=True))
    extras = sorted({name for curve in curves for name in curve.measures()} - {*COLUMNS})
    measured = sorted({name for record in records for one in record.evaluations for name in one.extras} - {"loss"})
    writer = csv.writer(to)
    evaluated = ["loss", *measured] if any(record.evaluations for record in records) else []
    writer.writerow([*COLUMNS, *map(_text, extras), *(f"eval_{shown(name)}" for name in evaluated)])
    for record, curve in both:
        evaluations = {one.step: one for one in record.evaluations}
        before = evaluations.pop(0, None)
        if before is not None:
            head = [_text(record.run.name), before.attempt, 0, before.time, before.epoch]
            blanks = [""] * (len(COLUMNS) + len(extras) - len(head))
            writer.writerow([*head, *blanks, *_evaluation(before, evaluated)])
        for step in counting_steps(record, curve):
            own = [_text(record.run.name), *(_cell(getattr(step, name)) for name in COLUMNS[1:])]
            more = [_cell(step.extras.get(name)) for name in extras]
            writer.writerow([*own, *more, *_evaluation(evaluations.get(step.step), evaluated)])


def counting_steps(record: RunRecord, curves: RunCurves) -> Iterator[Step]:
    """The steps of the line of history that counts, in their order: none twice, none that was taken back."""
    attempts = curves.curves.attempts
    by_number = {attempt.attempt: attempt for attempt in attempts}
    starts = {attempt.number: attempt.start_step for attempt in record.attempts if attempt.start_step is not None}
    limits = {
        number: min((start for later, start in starts.items() if later > number), default=None) for number in by_number
    }
    last = 0
    for step in Tail(record.run.metrics).records():
        if not isinstance(step, Step) or (attempt := by_number.get(step.attempt)) is None:
            continue
        limit = limits[step.attempt]
        is_own = step.token == attempt.token and step.step <= attempt.last_step
        if is_own and step.step > last and (limit is None or step.step <= limit):
            last = step.step
            yield step


def _evaluation(evaluation: EvaluationDone | None, names: Sequence[str]) -> list[object]:
    if evaluation is None:
        return [""] * len(names)
    return [_cell(evaluation.loss if name == "loss" else evaluation.extras.get(name)) for name in names]


def _cell(value: object) -> object:
    return "" if value is None else int(value) if isinstance(value, bool) else value


def _text(text: str) -> str:
    """Foreign text that no spreadsheet takes for a formula."""
    return f"'{shown(text)}" if text.startswith(FORMULA) else shown(text)
