"""The page of a sweep: what it has found, the curves of its leaders, rungs, importance, every trial."""

from collections.abc import Sequence

from ftui import units
from ftui.reports.charts import Chart, ChartLine, make_chart
from ftui.reports.html_page import make_page
from ftui.reports.run_curves import CurvePart
from ftui.reports.run_differences import MOST_RUNS
from ftui.sweep.repeats import repeat_lines, repeated_trials
from ftui.sweep.results.rung_table import rung_table
from ftui.sweep.results.sweep_results import ResultRow, SweepView, keys_of, leader_points, value_text
from ftui.text import toml_value

RUNG_HEAD = ("step", "came", "failed", "went on", "best", "last to go on")


def sweep_page(view: SweepView, importance: Sequence[str]) -> str:
    """The page; `importance` as lines, which take another process to compute."""
    keys = keys_of(view)
    repeated = repeated_trials(view.plan, view.ladder, view.state)
    names = [view.files.run_of(one.trial.number).name for one in repeated]
    chart = leaders_chart(view)
    return make_page(
        "sweep.html.jinja", view.files.name, [] if chart is None else [chart],
        standing=view.standing, facts_of_sweep=_facts(view), repeats=repeat_lines(names, repeated),
        importance=importance,
        rung_head=RUNG_HEAD, rungs=_rungs(view) if view.plan.rungs else [],
        trial_head=("run", "rank", *keys, "step", view.metric, "standing", "time"),
        trials=[_trial(row, keys) for row in view.rows],
    )  # fmt: skip


def leaders_chart(view: SweepView) -> Chart | None:
    """The metric of the best trials over their steps; `None` where none was evaluated."""
    lines = []
    for row in [row for row in view.rows if row.rank is not None][:MOST_RUNS]:
        parts = [CurvePart(step, step, value, value, value) for step, value in leader_points(view, row)]
        lines.append(ChartLine(row.run, parts))
    return make_chart(f"{view.metric} of the leaders, by step", [line for line in lines if line.parts], "step")


def _facts(view: SweepView) -> list[tuple[str, str]]:
    plan, best = view.plan, view.best
    rungs = f" at steps {', '.join(map(str, plan.rungs))}, one in {plan.eta} goes on" if plan.rungs else ""
    facts = [
        ("trials", f"{len(view.state.searched)} of {plan.trials}, {view.num_finished} finished"),
        ("method", f"{plan.sampler}, {plan.scheduler}{rungs}"),
        ("compared by", f"eval {view.metric}"),
        ("training", units.duration(view.state.seconds)),
    ]
    if best is not None and best.value is not None:
        values = ", ".join(f"{key} = {toml_value(value)}" for key, value in best.trial.values.items())
        facts += [("best", f"{best.run}: {best.value:.5g} at step {best.step}"), ("its values", values)]
    return facts


def _rungs(view: SweepView) -> list[list[str]]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.5g}"

    return [
        [str(row.step), str(len(row.came)), str(len(row.failed)), str(len(row.went_on)), number(row.best),
         number(row.last_to_go_on)]
        for row in rung_table(view.ladder, [trial.stand for trial in view.state.searched])
    ]  # fmt: skip


def _trial(row: ResultRow, keys: Sequence[str]) -> list[str]:
    values = [value_text(row.trial.values.get(key)) for key in keys]
    rank = "again" if row.trial.repeat_of is not None else str(row.rank or "")
    step, value = "" if row.step is None else str(row.step), "" if row.value is None else f"{row.value:.5g}"
    standing = f"{row.standing}, {row.verdict}" if row.verdict else row.standing
    return [row.run, rank, *values, step, value, standing, units.duration(row.trial.seconds)]
