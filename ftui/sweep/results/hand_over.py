"""What a sweep has found, for others: the best trial as a profile, all trials as a study of Optuna."""

from pathlib import Path
from typing import Any

import tomlkit

from ftui.errors import UsageError
from ftui.sweep.results.sweep_results import SweepView
from ftui.sweep.samplers import optuna_library
from ftui.sweep.space import Dimension, ValueList
from ftui.sweep.sweep_files import Trial
from ftui.system.files import replace_file
from ftui.system.volume import disk_error
from ftui.text import shown


def best_profile(view: SweepView) -> str:
    """The profile of the best trial, and where its values come from as comments: those without are the profile's own.

    Raises:
        UsageError: no trial has a value yet.
    """
    best = view.best
    if best is None:
        raise UsageError(
            f"No trial of {view.files.name} has a value yet.", hint=f"ftui sweep results {view.files.name}"
        )
    document = tomlkit.parse(view.files.profile.read_text())
    number = f"trial {best.trial.number} of {len(view.state.searched)}"
    sources = {one.key: f"searched by {view.plan.sampler}: {number}" for one in view.plan.space}
    sources |= {key: f"follows: {rule}" for key, rule in view.plan.derived.items()}
    values = dict(best.trial.values)
    if view.plan.rungs:
        values["train.max_steps"], sources["train.max_steps"] = view.plan.rungs[-1], "the last rung"
        values["train.num_train_epochs"] = "none"
    for key, value in values.items():
        _set(document, key, value, sources.get(key, ""))
    result = f"eval {view.metric} {best.value:.6g} at step {best.step}"
    head = [
        f"# The best of the sweep {view.files.name}: run {best.run}, {result}.",
        f"# What has no comment is as in {shown(view.plan.profile)}.",
    ]
    return "\n".join([*head, "", tomlkit.dumps(document)])


def write_best(view: SweepView, path: Path) -> None:
    """Write that profile into a new file.

    Raises:
        UsageError: no trial has a value yet, or there is something at `path`.
        DiskError: it cannot be written.
    """
    text = best_profile(view)
    if path.exists():
        raise UsageError(f"{path} exists.", hint="Name a file that does not.")
    write_new(path, text)


def write_new(path: Path, text: str) -> None:
    """Write a text into a file; raises DiskError where that cannot be."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise disk_error(error, f"{path} cannot be written", path.absolute().parent) from error


def _set(document: Any, key: str, value: Any, comment: str) -> None:
    *tables, name = key.split(".")
    table = document
    for one in tables:
        if one not in table or not hasattr(table[one], "keys"):
            table[one] = tomlkit.table()
        table = table[one]
    table[name] = value
    if comment:
        table[name].comment(comment)


def export_optuna(view: SweepView, path: Path) -> int:
    """Write all trials as a study into an SQLite file that `optuna-dashboard sqlite:///FILE` opens; how many.

    Raises:
        UsageError: there is something at `path`, or Optuna is missing.
    """
    optuna = optuna_library()
    if path.exists():
        raise UsageError(f"{path} exists.", hint="Name a file that does not.")
    direction = "maximize" if view.ladder.greater_is_better else "minimize"
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name=view.files.name, direction=direction)
    for trial in view.state.searched:
        study.add_trial(_optuna_trial(optuna, view, trial))
    return len(view.state.searched)


def _optuna_trial(optuna: Any, view: SweepView, trial: Trial) -> Any:
    rungs, top = view.ladder.rungs, view.ladder.top
    values = {rung: value for rung, value in trial.results.items() if value is not None}
    states = optuna.trial.TrialState
    if top in values:
        state = states.COMPLETE
    elif trial.target is not None:
        state = states.RUNNING
    else:
        state = states.PRUNED if values else states.FAIL
    return optuna.trial.create_trial(
        state=state, value=values.get(top),
        params={one.key: _plain(one, trial.point[one.key]) for one in view.plan.space},
        distributions={one.key: _distribution(optuna, one) for one in view.plan.space},
        intermediate_values={rungs[rung]: value for rung, value in values.items()},
        user_attrs={"run": view.files.run_of(trial.number).name, "derived": trial.derived, "ended": trial.ended},
    )  # fmt: skip


def _plain(dimension: Dimension, value: Any) -> Any:
    """Values that Optuna's categories may not have, lists, as text."""
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain or not isinstance(dimension, ValueList) else str(value)


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if isinstance(dimension, ValueList):
        return optuna.distributions.CategoricalDistribution([_plain(dimension, one) for one in dimension.values])
    kind = optuna.distributions.IntDistribution if dimension.is_whole else optuna.distributions.FloatDistribution
    return kind(
        dimension.low, dimension.high, log=dimension.log, **({"step": dimension.step} if dimension.step else {})
    )
