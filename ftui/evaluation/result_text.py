"""The results of an evaluation in words: lines of a table, for commands and screens."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from ftui.evaluation.lm_eval_results import TaskFigure
from ftui.evaluation.paired import INTERVAL
from ftui.evaluation.results import MeasureLine, MeasureTable
from ftui.text import wrapped

PARTS = {"data": "measure", "forgetting": "forgetting"}
NOTE_WIDTH = 50  # columns, so that a table of notes fits into 80
PERCENT = ("mean_token_accuracy", "exact_match", "json_valid", "stopped")


def plan_rows(folder: Path, assumptions: Sequence[str]) -> list[tuple[str, ...]]:
    """What a person reads before it begins."""
    goes_on = "goes on with" if os.path.isfile(folder / "rows.jsonl") else "written to"
    return [(goes_on, str(folder)), *(("note", text) for text in assumptions)]


def result_rows(
    tables: Sequence[MeasureTable], lm_eval: Sequence[TaskFigure], notes: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """The tables as lines of as many words each, heads included; below them figures of lm-eval, and notes."""
    rows: list[tuple[str, ...]] = []
    for table in tables:
        rows += _table_rows(table)
    if lm_eval:
        rows.append(("lm-eval", "measure", lm_eval[0].of))
        for one in lm_eval:
            spread = "" if one.stderr is None or math.isnan(one.stderr) else f" ± {one.stderr:.4f}"
            rows.append((one.task, one.measure, f"{one.value:.4f}{spread}"))
    width = max((len(row) for row in rows), default=2)
    rows = [(*row, *[""] * (width - len(row))) for row in rows]
    for note in notes:
        lines = wrapped(note, NOTE_WIDTH)
        rows += [("" if number else "note", *[""] * (width - 2), line) for number, line in enumerate(lines)]
    return rows


def _table_rows(table: MeasureTable) -> list[tuple[str, ...]]:
    compares = len(table.sides) > 1
    head = (PARTS[table.part], *table.sides, "rows", *(("difference", "") if compares else ()))
    lines = [
        (
            line.words, *(figure_words(line, value) for value in line.values), str(line.num_rows),
            *((_difference(line), line.verdict) if compares else ()),
        )
        for line in table.lines
    ]  # fmt: skip
    return [head, *lines]


def figure_words(line: MeasureLine, value: float | None) -> str:
    """A figure of a line: a share as `81.2%`, anything else in four digits."""
    if value is None:
        return "-"
    return f"{value:.1%}" if line.name in PERCENT else f"{value:.4g}"


def _difference(line: MeasureLine) -> str:
    found = line.difference
    if found is None:
        return ""
    if line.name in PERCENT:
        return f"{found.mean:+.1%} ({found.low:+.1%} to {found.high:+.1%})"
    return f"{found.mean:+.3g} ({found.low:+.3g} to {found.high:+.3g})"


def algorithm_lines(tables: Sequence[MeasureTable]) -> list[str]:
    """How each figure is computed."""
    named = {line.words: line.algorithm for table in tables for line in table.lines}
    lines = [f"{words}: {algorithm}" for words, algorithm in named.items()]
    if any(line.difference for table in tables for line in table.lines):
        lines.append(f"difference: the first less the second, with its interval ({INTERVAL})")
    return lines
