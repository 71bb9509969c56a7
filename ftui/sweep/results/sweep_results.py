"""What a sweep has found: its trials in the order of their values, as rows for tables, CSV and JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ftui.errors import FtuiError
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.runs.state import phase_word
from ftui.runs.status import read_status
from ftui.sweep.promotion import Ladder, best_trials
from ftui.sweep.repeats import repeated_trials, verdict
from ftui.sweep.sweep_files import SweepFiles, SweepState, Trial, all_sweeps
from ftui.sweep.sweep_plan import SweepPlan
from ftui.system.files import is_locked
from ftui.text import shown


@dataclass(frozen=True)
class ResultRow:
    """A trial; `rank` 1 is the best, `None`: it has no value. `step` and `value` are those of its highest rung.

    `verdict`: with repeats, whether it differs from the best: `best`, `no difference`, `worse`.
    """

    rank: int | None
    trial: Trial
    run: str
    step: int | None
    value: float | None
    standing: str
    verdict: str = ""


@dataclass(frozen=True)
class SweepView:
    """A sweep as people see it. `profile`: what every trial has."""

    files: SweepFiles
    plan: SweepPlan
    state: SweepState
    ladder: Ladder
    profile: Profile
    rows: Sequence[ResultRow]
    is_at_work: bool

    @property
    def metric(self) -> str:
        """The measure by which trials are compared."""
        return self.profile.resolved_eval.metric_for_best_model

    @property
    def best(self) -> ResultRow | None:
        """The best trial, of those that came farthest."""
        return self.rows[0] if self.rows and self.rows[0].rank is not None else None

    @property
    def num_finished(self) -> int:
        """Trials, without repeats, that were trained to the end."""
        return sum(trial.results.get(self.ladder.top) is not None for trial in self.state.searched)

    @property
    def standing(self) -> str:
        """What the sweep is doing, in words."""
        if self.state.ended:
            return self.state.ended
        if self.state.is_paused:
            return "paused"
        return "searching" if self.is_at_work else "waits for a command of ftui"


@dataclass(frozen=True)
class ListedSweep:
    """A sweep, and what is in it; `view` is `None` where it cannot be read, and `problem` says why."""

    files: SweepFiles
    view: SweepView | None
    problem: str = ""


def list_sweeps() -> list[ListedSweep]:
    """Every sweep that is known here. One that cannot be read hides no other."""
    listed = []
    for files in all_sweeps():
        try:
            listed.append(ListedSweep(files, view_sweep(files)))
        except FtuiError as error:
            listed.append(ListedSweep(files, None, f"{error.message} {error.hint}".rstrip()))
        except OSError as error:  # of the volume, or a journal that is no file
            listed.append(ListedSweep(files, None, f"{files.journal}: {error}"))
    return listed


def view_sweep(files: SweepFiles) -> SweepView:
    """Read all of one sweep.

    Raises:
        ProfileError: somebody has edited its copies, and they are wrong now.
    """
    from ftui.sweep.controller import ladder_of

    plan, state, profile = files.read_plan(), files.read(), resolve(files.profile).profile
    ladder = ladder_of(plan, greater_is_better=profile.resolved_eval.greater_counts)
    order = [stand.number for stand in best_trials(ladder, [trial.stand for trial in state.searched])]
    others = [trial.number for trial in state.trials if trial.number not in order]
    ranked = [_row(files, state.trials[number], rank) for rank, number in enumerate(order, 1)]
    repeated = repeated_trials(plan, ladder, state)
    verdicts = {one.trial.number: verdict(one, repeated[0]) for one in repeated}
    ranked = [replace(row, verdict=verdicts.get(row.trial.number, "")) for row in ranked]
    rows = [*ranked, *(_row(files, state.trials[number], None) for number in others)]
    return SweepView(files, plan, state, ladder, profile, rows, is_locked(files.lock))


def leader_points(view: SweepView, row: ResultRow) -> list[tuple[int, float]]:
    """What a trial's run was evaluated to so far: step and value of the metric."""
    run = view.files.run_of(row.trial.number)
    if not run.facts.exists():
        return []
    found = (
        (one.step, view.profile.resolved_eval.value_of(one.loss, one.extras))
        for one in read_status(run).state.evaluations
    )
    return [(step, value) for step, value in found if value is not None]


def _row(files: SweepFiles, trial: Trial, rank: int | None) -> ResultRow:
    valued = [rung for rung, value in trial.results.items() if value is not None]
    rung = max(valued, default=None)
    run = files.run_of(trial.number)
    if trial.ended:
        standing = trial.ended
    elif trial.target is not None:
        standing = phase_word(read_status(run).state.phase) if run.facts.exists() else "queued"
    else:
        standing = phase_word(read_status(run).state.phase) if run.facts.exists() else "removed"
    if rung is None:
        return ResultRow(None, trial, run.name, None, None, standing)
    return ResultRow(rank, trial, run.name, trial.steps[rung], trial.results[rung], standing)


def keys_of(view: SweepView) -> list[str]:
    """The dotted keys in which trials differ, searched ones first."""
    return [*(dimension.key for dimension in view.plan.space), *view.plan.derived]


def value_text(value: object) -> str:
    """A value in a table."""
    if not isinstance(value, float):
        return shown("" if value is None else str(value))
    if not 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def csv_of(view: SweepView) -> str:
    """A line a trial, in the order of their numbers: values, and the metric at each rung."""
    keys, rungs = keys_of(view), range(len(view.ladder.rungs))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = [f"{view.metric}@{view.ladder.rungs[rung]}" if view.plan.rungs else view.metric for rung in rungs]
    writer.writerow(["trial", "run", "rank", *keys, "step", *heads, "seconds", "standing", "repeat_of"])
    for row in sorted(view.rows, key=lambda row: row.trial.number):
        trial = row.trial
        results = [trial.results.get(rung) for rung in rungs]
        line: list[Any] = [trial.number, row.run, row.rank, *(trial.values.get(key) for key in keys), row.step]
        writer.writerow(
            [
                "" if one is None else one
                for one in [*line, *results, round(trial.seconds, 1), row.standing, trial.repeat_of]
            ]
        )
    return file.getvalue()


def as_plain(view: SweepView) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "sweep": view.files.name, "folder": str(view.files.folder), "metric": view.metric,
        "greater_is_better": view.ladder.greater_is_better, "rungs": list(view.plan.rungs),
        "standing": view.standing, "seconds": view.state.seconds,
        "trials": [
            {
                "trial": row.trial.number, "run": row.run, "rank": row.rank, "values": row.trial.values,
                "step": row.step, "value": row.value, "standing": row.standing,
                "repeat_of": row.trial.repeat_of, "seconds": row.trial.seconds,
                "results": {str(row.trial.steps[rung]): value for rung, value in row.trial.results.items()},
            }
            for row in view.rows
        ],
    }  # fmt: skip
