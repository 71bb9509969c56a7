"""Which point of the space a trial gets: a pure function of the sweep's seed, the trial's number and the results.

So a sweep that is killed between two trials asks the same next question. `random` and `grid` are ours; the others stand
on libraries of the extra `search`, which are imported here only, in the process of the sweep.
"""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftui.errors import UsageError
from ftui.sweep.promotion import Ladder, TrialStand
from ftui.sweep.space import Dimension, ValueList, ValueRange, point_at

LIBRARIES = {"qmc": ("scipy.stats.qmc",), "tpe": ("optuna",), "gp": ("optuna", "scipy"), "cmaes": ("cmaes", "numpy")}
SAMPLERS = ("random", "grid", "qmc", "tpe", "gp", "cmaes")
STARTUP_TRIALS = 10  # of tpe and gp, drawn at random first; Optuna's own number
SIGMA = 0.25  # of cmaes' first generation, in a space from 0 to 1 in each dimension (Hansen 2016: 0.2 to 0.5)


@dataclass(frozen=True)
class AskedTrial:
    """A trial that has its point: what of it a sampler may learn from."""

    point: Mapping[str, Any]
    stand: TrialStand


@dataclass(frozen=True)
class SearchQuestion:
    """All that a sampler goes by."""

    space: tuple[Dimension, ...]
    seed: int
    ladder: Ladder
    asked: Sequence[AskedTrial]

    @property
    def number(self) -> int:
        """The number of the trial that is asked for."""
        return len(self.asked)


def ask(sampler: str, question: SearchQuestion) -> dict[str, Any] | None:
    """The next trial's point; `None` where trials that are on their way must be waited for.

    Raises:
        UsageError: a library of the extra `search` is missing.
    """
    return _SAMPLERS[sampler](question)


def _random(question: SearchQuestion) -> dict[str, Any]:
    draw = random.Random(f"{question.seed}/{question.number}")
    return point_at(question.space, [draw.random() for _ in question.space])


def grid_size(space: Sequence[Dimension]) -> int:
    """How many points a grid has."""
    return math.prod(len(dimension.values) for dimension in space)


def _grid(question: SearchQuestion) -> dict[str, Any]:
    """The last key changes first, and the grid begins anew when it is through."""
    place = question.number % grid_size(question.space)
    points = itertools.product(*(dimension.values for dimension in question.space))
    values = next(itertools.islice(points, place, None))
    return dict(zip((dimension.key for dimension in question.space), values, strict=True))


def _qmc(question: SearchQuestion) -> dict[str, Any]:
    """A scrambled Sobol sequence (Owen 1995), which fills the space more evenly than chance."""
    qmc = _library("scipy.stats.qmc")
    engine = qmc.Sobol(len(question.space), rng=question.seed)
    if question.number:
        engine.fast_forward(question.number)
    return point_at(question.space, engine.random(1)[0].tolist())


def _tpe(question: SearchQuestion) -> dict[str, Any]:
    """Tree-structured Parzen estimator (Bergstra et al. 2011). A trial below the last rung is one that was pruned."""
    samplers = _library("optuna.samplers")
    seed = random.Random(f"{question.seed}/{question.number}").getrandbits(31)
    sampler = samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed, constant_liar=True)
    return _ask_optuna(question, sampler, [_as_pruned(question, one) for one in question.asked])


def _gp(question: SearchQuestion) -> dict[str, Any]:
    """A Gaussian process with log expected improvement, over the values of one rung: others cannot be compared."""
    samplers = _library("optuna.samplers")
    seed = random.Random(f"{question.seed}/{question.number}").getrandbits(31)
    rung = comparable_rung(question)
    values = values_at(question, rung)
    told = [
        {"point": one.point, "value": value} for one, value in zip(question.asked, values, strict=True)
        if value is not None
    ]  # fmt: skip
    return _ask_optuna(question, samplers.GPSampler(n_startup_trials=STARTUP_TRIALS, seed=seed), told)


def comparable_rung(question: SearchQuestion) -> int:
    """The highest rung at which more trials than dimensions have a value (BOHB, Falkner et al. 2018)."""
    for rung in range(question.ladder.top, 0, -1):
        if sum(one.stand.results.get(rung) is not None for one in question.asked) > len(question.space):
            return rung
    return 0


def values_at(question: SearchQuestion, rung: int) -> list[float | None]:
    """Each trial's value at a rung, `None` where it has not come there; one that failed has the worst of all."""
    results = [one.stand.results for one in question.asked]
    known = [value for one in results if (value := one.get(rung)) is not None and math.isfinite(value)]
    if not known:
        return [None for _ in results]
    worst = min(known) if question.ladder.greater_is_better else max(known)
    return [
        one.get(rung) if one.get(rung) is not None else worst if _has_failed_by(one, rung) else None for one in results
    ]


def _has_failed_by(results: Mapping[int, float | None], rung: int) -> bool:
    return any(value is None and reached <= rung for reached, value in results.items())


def _as_pruned(question: SearchQuestion, asked: AskedTrial) -> dict[str, Any]:
    """A trial in Optuna's terms: complete at the last rung, pruned below it, or running."""
    results, rungs = asked.stand.results, question.ladder.rungs
    top = question.ladder.top
    values = {rung: value for rung, value in results.items() if value is not None and math.isfinite(value)}
    if top in values:
        return {"point": asked.point, "value": values[top]}
    if values:
        return {"point": asked.point, "intermediate": {rungs[rung]: value for rung, value in values.items()}}
    return {"point": asked.point, "intermediate": {}} if results else {"point": asked.point}


def _ask_optuna(question: SearchQuestion, sampler: Any, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    optuna = optuna_library()
    distributions = {dimension.key: as_distribution(dimension) for dimension in question.space}
    direction = "maximize" if question.ladder.greater_is_better else "minimize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    for one in told:
        state = "COMPLETE" if "value" in one else "PRUNED" if "intermediate" in one else "RUNNING"
        params = as_parameters(question.space, one["point"])
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[state], value=one.get("value"), params=params,
                distributions=distributions, intermediate_values=one.get("intermediate"),
            )
        )  # fmt: skip
    drawn = study.ask(distributions).params
    return {d.key: d.values[drawn[d.key]] if isinstance(d, ValueList) else d.rounded(drawn[d.key])
            for d in question.space}  # fmt: skip


def as_parameters(space: Sequence[Dimension], point: Mapping[str, Any]) -> dict[str, Any]:
    """A point as Optuna has it, for `as_distribution`."""
    return {d.key: d.index(point[d.key]) if isinstance(d, ValueList) else point[d.key] for d in space}


def as_distribution(dimension: Dimension) -> Any:
    """A key as Optuna has it; of a list it knows the places only, as a value may be anything."""
    distributions = _library("optuna.distributions")
    if isinstance(dimension, ValueList):
        return distributions.CategoricalDistribution(tuple(range(len(dimension.values))))
    kind = distributions.IntDistribution if dimension.is_whole else distributions.FloatDistribution
    step = {} if dimension.step is None else {"step": dimension.step}
    return kind(dimension.low, dimension.high, log=dimension.log, **step)


def population_size(num_dimensions: int) -> int:
    """Trials of one generation of CMA-ES: 4 + floor(3 ln n) (Hansen 2016)."""
    return 4 + int(3 * math.log(num_dimensions))


def _cmaes(question: SearchQuestion) -> dict[str, Any] | None:
    """CMA-ES (Hansen 2016) over the values of the first rung: a generation waits for all of the one before."""
    cmaes, np = _library("cmaes"), _library("numpy")
    dimensions = len(question.space)
    size = population_size(dimensions)
    optimizer = cmaes.CMA(
        mean=np.full(dimensions, 0.5), sigma=SIGMA, bounds=np.tile([0.0, 1.0], (dimensions, 1)), seed=question.seed,
        population_size=size,
    )  # fmt: skip
    sign = -1.0 if question.ladder.greater_is_better else 1.0
    for generation in range(question.number // size):
        values = values_at(question, 0)[generation * size : (generation + 1) * size]
        if any(value is None for value in values):
            return None
        places = [optimizer.ask() for _ in values]
        optimizer.tell(
            [(place, sign * value) for place, value in zip(places, values, strict=True) if value is not None]
        )
    for _ in range(question.number % size):
        optimizer.ask()
    return point_at(question.space, optimizer.ask().tolist())


def _library(name: str) -> Any:
    from importlib import import_module  # Optuna takes 0.4 s, SciPy 1 s, GPs torch

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        hint = "pip install 'finetune-tui[search]', or: sampler = \"random\""
        raise UsageError(f"This sampler needs {error.name}, which is not installed.", hint=hint) from error


def optuna_library() -> Any:
    """Optuna, without its lines on standard error; raises UsageError where it is missing."""
    optuna = _library("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def check_library(sampler: str) -> None:
    """Raises UsageError where the library that a sampler stands on is missing."""
    for name in LIBRARIES.get(sampler, ()):
        _library(name)


def check_sampler(sampler: str, space: Sequence[Dimension]) -> str:
    """Why a sampler cannot search this space, with the fix on a second line; empty where it can."""
    if sampler == "grid":
        endless = [one.key for one in space if isinstance(one, ValueRange) and not one.values]
        if endless:
            return f"a grid needs a list, and {endless[0]} is a range\nWrite [ ... ], or give the range a step."
    if sampler == "cmaes":
        lists = [one.key for one in space if isinstance(one, ValueList)]
        if lists:
            return f'cmaes takes ranges only, and {lists[0]} is a list\nUse sampler = "tpe", or write {{ low, high }}.'
        if len(space) < 2:
            return 'cmaes needs two keys or more\nUse sampler = "tpe" or "gp".'
    return ""


_SAMPLERS: dict[str, Callable[[SearchQuestion], dict[str, Any] | None]] = {
    "random": _random, "grid": _grid, "qmc": _qmc, "tpe": _tpe, "gp": _gp, "cmaes": _cmaes,
}  # fmt: skip
