"""The schedulers of Ray Tune and Optuna on recorded curves, one trial after the other: what each spends and finds.

    python tests/bench/search/stopping.py ray|optuna-halving|optuna-hyperband curves.json FIRST LAST ETA

A program of its own, as Ray needs an environment of its own: nothing of ftui or of the tests is imported. The tool's
code decides at each evaluation whether a trial goes on; what it would have trained is read from the curve. Prints JSON:
by seed the steps, and the number of the trial that the tool calls its best.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Curve = Mapping[int, float]
Search = Callable[[Sequence[Curve], int, int, int], tuple[int, int]]


@dataclass(frozen=True)
class NamedTrial:
    """What Ray's scheduler asks of a trial when nothing is really run."""

    trial_id: str


def search_by_ray(curves: Sequence[Curve], first: int, last: int, eta: int) -> tuple[int, int]:
    """`ASHAScheduler`; the best is the trial whose last report is best (`get_best_result`, scope "last")."""
    from ray.tune.schedulers import ASHAScheduler

    scheduler = ASHAScheduler("step", "loss", "min", max_t=last, grace_period=first, reduction_factor=eta)
    controller: Any = None  # of which the scheduler asks nothing
    steps, reports = 0, []
    for number, curve in enumerate(curves):
        trial: Any = NamedTrial(str(number))
        scheduler.on_trial_add(controller, trial)
        for step, loss in sorted(curve.items()):
            if scheduler.on_trial_result(controller, trial, {"step": step, "loss": loss}) == "STOP":
                break
        steps += step
        reports.append((loss, number))
    return steps, min(reports)[1]


def search_by_optuna(pruner: str) -> Search:
    """A study with that pruner; the best is `study.best_trial`, of those that were not pruned."""

    def search(curves: Sequence[Curve], first: int, last: int, eta: int) -> tuple[int, int]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=eta)
        bands = optuna.pruners.HyperbandPruner(min_resource=first, max_resource=last, reduction_factor=eta)
        study = optuna.create_study(
            pruner=halving if pruner == "halving" else bands, sampler=optuna.samplers.RandomSampler(seed=0),
            study_name="curves",  # by which Hyperband deals out its brackets
        )  # fmt: skip
        spent: list[int] = []

        def objective(trial: optuna.Trial) -> float:
            spent.append(0)
            for step, loss in sorted(curves[trial.number].items()):
                spent[-1] = step
                trial.report(loss, step)
                if step < last and trial.should_prune():
                    raise optuna.TrialPruned
            return loss

        study.optimize(objective, n_trials=len(curves))
        return sum(spent), study.best_trial.number

    return search


SEARCHES: dict[str, Search] = {
    "ray": search_by_ray, "optuna-halving": search_by_optuna("halving"),
    "optuna-hyperband": search_by_optuna("hyperband"),
}  # fmt: skip


def main(tool: str, path: str, first: str, last: str, eta: str) -> None:
    found = {}
    for seed, trials in json.loads(Path(path).read_text()).items():
        curves = [{int(step): loss for step, loss in trial["losses"].items()} for trial in trials]
        found[seed] = SEARCHES[tool](curves, int(first), int(last), int(eta))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
