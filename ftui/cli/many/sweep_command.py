"""`ftui sweep FILE`, `ftui sweep list | results | pause | continue`: searches for values."""

import json
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ftui import units
from ftui.cli.terminal import LiveOutput, has_screen, table
from ftui.errors import UsageError
from ftui.queue.queue_files import QueueFiles
from ftui.runs.run_folder import runs_root
from ftui.sweep.executors.run_settings import settings_of
from ftui.sweep.executors.slurm_jobs import job_script
from ftui.sweep.forecast import Forecast
from ftui.sweep.import_sweep import import_sweep
from ftui.sweep.repeats import repeat_lines, repeated_trials
from ftui.sweep.results.hand_over import best_profile, export_optuna, write_best, write_new
from ftui.sweep.results.importance import Importance, ask_importance, importance_lines
from ftui.sweep.results.sweep_results import (
    ResultRow,
    SweepView,
    as_plain,
    csv_of,
    keys_of,
    list_sweeps,
    value_text,
    view_sweep,
)
from ftui.sweep.samplers import check_library
from ftui.sweep.start_sweep import SweepCandidate, create_sweep, find_sweep_candidate, read_sweep
from ftui.sweep.stop_sweep import continue_sweep, pause_sweep, stop_sweep
from ftui.sweep.sweep_files import SWEEPS, SweepFiles, SweepState, find_sweep
from ftui.sweep.sweep_plan import SweepPlan
from ftui.sweep.wake_sweeps import wake
from ftui.system.files import replace_file
from ftui.text import complaint, escape_document, shown, toml_value

FOLLOW_SECONDS = 1.0
HEADINGS = ("sweep", "trials", "finished", "best", "standing")


def start_sweep(
    file: str, dry_run: bool, detach: bool, executor: str | None, print_only: bool, allow: Collection[str]
) -> int:
    """`ftui sweep FILE`: check it, say what it will take, start it and follow it.

    Raises:
        FtuiError: it would be refused; nothing was started.
    """
    from ftui.helper.client import Helper

    _check_file(file)
    if print_only:
        print(script_of(Path(file), executor), end="")
        return 0
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr) as lines:
        lines.draw("counting rows and tokens, simulating the largest trial ...")
        candidate = find_sweep_candidate(helper, Path(file), allow, executor)
    check_library(candidate.plan.sampler)
    print("\n".join(shown(line) for line in describe(candidate)))
    if dry_run:
        return 0
    files, is_new = create_sweep(candidate)
    wake(files)
    print(f"\nThe sweep {files.name} {'begins' if is_new else 'goes on'}. `ftui sweep results {files.name}` shows it.")
    return 0 if detach else follow(files)


def script_of(path: Path, executor: str | None) -> str:
    """What `ftui sweep FILE --print` prints.

    Raises:
        UsageError: its trials are no jobs of SLURM.
    """
    plan, _, resolved = read_sweep(path)
    settings = settings_of(plan.run, executor)
    if settings.executor != "slurm":
        raise UsageError(
            f"The executor is {settings.executor}: only SLURM has a script.", hint="--executor slurm --print"
        )
    return job_script(SweepFiles(runs_root() / SWEEPS / plan.name), settings, resolved.profile)


def _check_file(file: str) -> None:
    """Raises UsageError for a word that is neither a file nor a command."""
    from ftui.cli.many.sweep_options import COMMANDS
    from ftui.text import did_you_mean

    if not Path(file).exists() and "/" not in file and not file.endswith(".toml"):
        hint = f"{did_you_mean(file, COMMANDS)}Name a sweep.toml: docs/sweep.md has one."
        raise UsageError(f"There is no file {shown(file)!r}.", hint=hint)


def describe(candidate: SweepCandidate) -> list[str]:
    """The plan and its forecast, as lines."""
    plan, cost = candidate.plan, candidate.forecast
    lines = [f"{plan.name}: {len(plan.space)} keys by {plan.sampler}, {plan.trials} trials of {plan.profile}"]
    lines += [f"  {one.key} = {_space_words(one)}" for one in plan.space]
    lines += [f"  {key} = {rule}" for key, rule in plan.derived.items()]
    metric = candidate.profile.resolved_eval.metric_for_best_model
    best = "greatest" if candidate.profile.resolved_eval.greater_counts else "least"
    lines.append(f"compared by eval {metric}, the {best} is best; {_rung_words(plan)}")
    lines += [f"warning: {warning}" for warning in candidate.warnings]
    memory = candidate.estimate.memory
    if memory is not None:
        values = ", ".join(f"{key} = {toml_value(value)}" for key, value in candidate.largest.items())
        room = f"{units.size(memory.low)} to {units.size(memory.high)}"
        lines.append(f"memory of the largest trial ({values}): {room} on {candidate.card.title}")
    return lines + cost_lines(plan, cost)


def _space_words(dimension: object) -> str:
    from ftui.sweep.space import ValueRange

    if isinstance(dimension, ValueRange):
        ways = (" by orders of magnitude" if dimension.log else "") + (
            f" in steps of {dimension.step:g}" if dimension.step else ""
        )
        return f"{dimension.low:g} to {dimension.high:g}{ways}"
    return " | ".join(toml_value(value) for value in dimension.values)  # type: ignore[attr-defined]


def _rung_words(plan: SweepPlan) -> str:
    if not plan.rungs:
        return "every trial is trained to the end"
    at = ", ".join(map(str, plan.rungs))
    return f"{plan.scheduler}: at steps {at} one in {plan.eta} goes on (their losses are before the rate has fallen)"


def cost_lines(plan: SweepPlan, cost: Forecast) -> list[str]:
    """Steps, time and money of all trials, as far as they are known."""
    if cost.steps is None or cost.full_steps is None:
        return ["time: not known before the rows are planned"]
    share = f" ({cost.steps / cost.full_steps:.0%} of {plan.trials} whole ones)" if plan.rungs else ""
    lines = [f"steps: about {cost.steps:,}{share}, in {cost.starts} starts"]
    if plan.rungs:
        lines.append(
            "trials at each rung: " + ", ".join(f"{n} to {r}" for n, r in zip(cost.reached, plan.rungs, strict=True))
        )
    if cost.hours is not None:
        lines.append(f"time: {_range(cost.hours, 'h')} of training on one card after the other, without loading")
    if cost.dollars is not None:
        lines.append(f"money: ${cost.dollars[0]:.2f} to ${cost.dollars[1]:.2f}")
    limits = [f"{plan.hours:g} hours" if plan.hours else "", f"${plan.money:g}" if plan.money else ""]
    if any(limits):
        lines.append(
            f"it ends at {' or '.join(one for one in limits if one)} of all trials together, and finishes its best"
        )
    return lines


def _range(hours: tuple[float, float], unit: str) -> str:
    return f"{hours[0]:.2g} to {hours[1]:.2g} {unit}"


def follow(files: SweepFiles) -> int:
    """Print what a sweep does until it has ended; Ctrl+C leaves it alone."""
    seen, has_told = SweepState(), False
    try:
        while True:
            state = files.read()
            if not has_told and QueueFiles(files.root).read().is_paused:
                print("The queue is paused, and trials wait in it: `ftui queue continue` starts them.")
                has_told = True
            print_news(files, seen, state)
            seen = state
            if state.ended:
                view = view_sweep(files)
                print(f"{files.name}: {shown(state.ended)}.")
                print("\n".join(best_lines(view)))
                return 0
            wake(files)
            time.sleep(FOLLOW_SECONDS)
    except KeyboardInterrupt:
        print(f"\nThe sweep goes on. `ftui sweep {files.plan_file}` watches it again.")
        return 0


def print_news(files: SweepFiles, before: SweepState, now: SweepState) -> None:
    """A line for each trial that was asked, promoted or has come to a rung since."""
    for trial in now.trials:
        old = before.trials[trial.number] if trial.number < len(before.trials) else None
        name = shown(files.run_of(trial.number).name)
        if old is None:
            values = ", ".join(f"{key} = {toml_value(value)}" for key, value in trial.values.items())
            print(f"{name}: {shown(values)}")
        for rung, value in trial.results.items():
            if old is None or rung not in old.results:
                what = trial.ended if value is None else f"{value:.5g}"
                print(f"{name}: step {trial.steps[rung]}: {shown(what)}")
        if old is not None and trial.target is not None and old.target is None:
            print(f"{name}: goes on")


def best_lines(view: SweepView) -> list[str]:
    """The best trial: its value, its values and its run."""
    best = view.best
    if best is None or best.value is None:
        return ["No trial has a value."]
    values = ", ".join(f"{key} = {toml_value(value)}" for key, value in best.trial.values.items())
    repeated = repeated_trials(view.plan, view.ladder, view.state)
    names = [shown(view.files.run_of(one.trial.number).name) for one in repeated]
    return [
        f"best: {shown(best.run)}, eval {view.metric} {best.value:.5g} at step {best.step}: {shown(values)}",
        f"its model is there: ftui status {shown(best.run)}" if best.standing == "finished" else "",
        *repeat_lines(names, repeated),
    ]


def print_sweeps(as_json: bool = False) -> int:
    """`ftui sweep list`."""
    sweeps = list_sweeps()
    if as_json:
        plain = [
            {"sweep": one.files.name, "folder": str(one.files.folder), "problem": one.problem}
            if one.view is None else as_plain(one.view) for one in sweeps
        ]  # fmt: skip
        print(escape_document(json.dumps(plain, indent=2)))
        return 0
    rows = [_sweep_row(one.view) for one in sweeps if one.view is not None]
    for one in sweeps:
        if one.view is None:
            print(complaint(f"The sweep {shown(one.files.name)} cannot be read: {one.problem}"), file=sys.stderr)
    if rows:
        print("\n".join(table([HEADINGS, *rows], (1, 2, 3), width=shutil.get_terminal_size().columns)))
    elif not sweeps:
        print("There is no sweep. `ftui sweep FILE` starts one; docs/sweep.md has an example.")
    return 0


def _sweep_row(view: SweepView) -> tuple[str, ...]:
    best = "" if view.best is None or view.best.value is None else f"{view.best.value:.5g}"
    number = f"{len(view.state.searched)}/{view.plan.trials}"
    return (shown(view.files.name), number, str(view.num_finished), best, shown(view.standing))


def show(name: str | None = None) -> int:
    """`ftui sweep show [SWEEP]`: the screen; where there is no terminal to draw on, the results as lines."""
    files = None if name is None else find_sweep(name)
    if not has_screen():
        return print_sweeps() if name is None else print_results(name)
    from ftui.tui.open_screens import open_sweep

    return open_sweep(files)


def print_results(name: str, as_csv: bool = False, as_json: bool = False, optuna_file: Path | None = None) -> int:
    """`ftui sweep results SWEEP`.

    Raises:
        UsageError: there is no such sweep.
    """
    view = view_sweep(find_sweep(name))
    if optuna_file is not None:
        number = export_optuna(view, optuna_file)
        print(f"{optuna_file}: {number} trials. `optuna-dashboard sqlite:///{optuna_file}` shows them.")
        return 0
    if as_csv:
        print(csv_of(view), end="")
        return 0
    importance, problem = _importance(view)
    if as_json:
        found = None if importance is None else msgspec.to_builtins(importance)
        print(escape_document(json.dumps(as_plain(view) | {"importance": found}, indent=2)))
        return 0
    keys = keys_of(view)
    heads = ("", "run", *(key.rpartition(".")[2] for key in keys), "step", view.metric, "standing")
    rows = [_result_row(row, keys) for row in view.rows]
    print(f"{shown(view.files.name)}: {shown(view.standing)}")
    if rows:
        right = (0, *range(2, len(keys) + 4))
        print("\n".join(table([heads, *rows], right, width=shutil.get_terminal_size().columns)))
    print("\n".join(line for line in best_lines(view) if line))
    print("\n".join(problem if importance is None else importance_lines(importance, view.metric)))
    return 0


def _importance(view: SweepView) -> tuple[Importance | None, list[str]]:
    """Which keys matter, from a process of its own, as Optuna takes a second; or why that is not known."""
    try:
        return ask_importance(view), []
    except UsageError as error:
        return None, [f"Importance: {error.message} {error.hint}".rstrip()]


def _result_row(row: ResultRow, keys: Sequence[str]) -> tuple[str, ...]:
    values = [value_text(row.trial.values.get(key)) for key in keys]
    value = "" if row.value is None else f"{row.value:.5g}"
    return (
        str(row.rank or ""), shown(row.run), *values, "" if row.step is None else str(row.step), value,
        shown(row.standing),
    )  # fmt: skip


def write_page(name: str, out: Path | None = None) -> int:
    """`ftui sweep report SWEEP`.

    Raises:
        UsageError: there is no such sweep, or there is a file at `out`.
    """
    from ftui.reports.sweep_page import sweep_page  # Jinja takes 50 ms

    view = view_sweep(find_sweep(name))
    to = out or Path(f"{view.files.name}.html")
    if to.exists():
        raise UsageError(f"{to} exists.", hint="Name a file that does not: -o FILE.")
    importance, problem = _importance(view)
    lines = problem if importance is None else importance_lines(importance, view.metric)
    write_new(to, sweep_page(view, lines))
    print(f"{shown(str(to))}: the page of the sweep {shown(view.files.name)}")
    return 0


def print_best(name: str, out: Path | None = None) -> int:
    """`ftui sweep best SWEEP`.

    Raises:
        UsageError: no trial has a value yet, or there is a file at `out`.
    """
    view = view_sweep(find_sweep(name))
    if out is None:
        print(escape_document(best_profile(view)), end="")
        return 0
    write_best(view, out)
    print(f"{out}: ftui run {out}")
    return 0


def import_file(file: Path, out: Path | None = None) -> int:
    """`ftui sweep import FILE`: what is left out is told on stderr.

    Raises:
        ProfileError: it is no sweep that is known.
        UsageError: there is a file at `out`.
    """
    result = import_sweep(file)
    for line in result.dropped:
        print(f"not carried: {shown(line)}", file=sys.stderr)
    if out is None:
        print(escape_document(result.text), end="")
        return 0
    if out.exists():
        raise UsageError(f"{out} exists.", hint="Name a file that does not.")
    replace_file(out, result.text.encode())
    print(f"{out}: name your profile in it, then: ftui sweep {out} --dry-run")
    return 0


def pause(name: str) -> int:
    """`ftui sweep pause SWEEP`."""
    files = find_sweep(name)
    already = "" if pause_sweep(files) else " already"
    print(f"The sweep {shown(files.name)} is paused{already}: trials on their way go on to their rung.")
    return 0


def stop(name: str) -> int:
    """`ftui sweep stop SWEEP`.

    Raises:
        UsageError: it has ended.
    """
    files = find_sweep(name)
    parked = stop_sweep(files)
    print(f"The sweep {shown(files.name)} is stopped" + (f"; parked: {', '.join(parked)}." if parked else "."))
    print(f"`ftui sweep continue {shown(files.name)}` lets it go on.")
    return 0


def go_on(name: str) -> int:
    """`ftui sweep continue SWEEP`."""
    files = find_sweep(name)
    already = "" if continue_sweep(files) else " already"
    wake(files)
    print(f"The sweep {shown(files.name)} goes on{already}.")
    return 0
