"""What `ftui evaluate` has measured of runs, where it measured several of them in the same way on the same rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ftui import units
from ftui.evaluation.result_text import figure_words
from ftui.evaluation.results import RowAnswer, read_results, summarise
from ftui.measures import TEXT_MEASURES
from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, UnsafePathError, read_plain


class MeasuredEvaluation(NamedTuple):
    """An evaluation of a run's own model. `same`: what must be equal for its figures to be compared with others."""

    time: float
    side: str
    data: str
    same: tuple[str, ...]
    rows: Path


def shared_evaluations(runs: Sequence[Run]) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """For each set of rows that two of the runs or more were evaluated on: its title, and lines of name and values.

    Of several models of a run the one that was evaluated last counts: the first line names it.
    """
    by_run = [{one.same: one for one in sorted(_read_evaluations(run))} for run in runs]
    for same in dict.fromkeys(key for own in by_run for key in own):
        found = [own.get(same) for own in by_run]
        there = [one for one in found if one is not None]
        if len(there) > 1:
            measured = [{} if one is None else _figures(one) for one in found]
            lines = [("model", [units.MISSING if one is None else one.side for one in found])]
            for name in dict.fromkeys(name for figures in measured for name in figures):
                lines.append((name, [figures.get(name, units.MISSING) for figures in measured]))
            yield f"evaluated on {Path(there[0].data).name}", lines


def _read_evaluations(run: Run) -> Iterator[MeasuredEvaluation]:
    for path in sorted(run.evaluations.glob("*/evaluation.json")):
        try:
            settings = msgspec.json.decode(read_plain(path), type=dict[str, Any])
            rows = path.with_name("rows.jsonl")
            hashes = sorted(str(value) for value in settings["sha256"].values())
            how = (str(settings.get(name)) for name in ("num_rows", "max_new_tokens", "sampling"))
            yield MeasuredEvaluation(
                rows.stat().st_mtime, str(settings["sides"][0]["title"]), str(settings["data"]), (*hashes, *how), rows
            )
        except (OSError, KeyError, IndexError, TypeError, AttributeError, UnsafePathError, *DAMAGED):
            continue  # of an evaluation that was cut off before it began, or was tampered with


def _figures(one: MeasuredEvaluation) -> dict[str, str]:
    """What was measured of the model, by the measure's words: means over all rows that are there, and their number."""
    try:
        results = read_results(one.rows)
    except (OSError, *DAMAGED):
        return {}
    own = sorted({name for row in results if isinstance(row, RowAnswer) for name in row.scores} - TEXT_MEASURES.keys())
    figures: dict[str, str] = {}
    for table in summarise(results, [one.side], own):
        of = "" if table.part == "data" else "forgetting: "
        figures |= {f"{of}{line.words}": figure_words(line, line.values[0]) for line in table.lines}
        figures |= {f"{of}rows": f"{max(line.num_rows for line in table.lines):,}"}
    return figures
