"""Which of the searched keys matter, and which cannot be told from chance.

PED-ANOVA (Watanabe et al. 2023), as Optuna computes it: how far the values of the best quarter of all trials are from
those of all. A share alone says little with few trials, as shares of keys without any effect add up to one as well. So
it is computed again with the results shuffled among the trials: a key matters where no shuffle makes as much of it.

Optuna brings numpy, which no screen loads: `python -P -m ftui.sweep.results.importance FOLDER` prints it as JSON.
"""

import random
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ftui.errors import FtuiError, UsageError
from ftui.sweep.promotion import Ladder
from ftui.sweep.samplers import AskedTrial, SearchQuestion, as_distribution, as_parameters, optuna_library, values_at
from ftui.sweep.sweep_files import SweepState
from ftui.sweep.sweep_plan import SweepPlan

if TYPE_CHECKING:  # it loads pydantic
    from ftui.sweep.results.sweep_results import SweepView

LEAST_TRIALS = 20  # with a value at one rung: then the best quarter are five, the least that Optuna's authors advise
BEST_SHARE = 0.25
SHUFFLES = 39  # a key without effect is above all of them once in 40 times
PROCESS_SECONDS = 60.0


class KeyImportance(msgspec.Struct, frozen=True):
    """`share` of all keys together; `is_chance`: as much comes out of results that are shuffled."""

    key: str
    share: float
    is_chance: bool


class Importance(msgspec.Struct, frozen=True):
    """The keys, the most important first; none where `num_trials`, which have a value at that `step`, are too few."""

    step: int
    num_trials: int
    keys: tuple[KeyImportance, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there were enough trials to tell anything."""
        return bool(self.keys)


def judged_rung(plan: SweepPlan, ladder: Ladder, state: SweepState) -> tuple[int, int]:
    """The rung at which most trials have a value, and how many have.

    A higher one would hide what matters most: who is there was chosen by it.
    """
    counts = [sum(trial.results.get(rung) is not None for trial in state.searched) for rung in range(len(ladder.rungs))]
    rung = max(range(len(counts)), key=lambda one: (counts[one], -one))
    return rung, counts[rung]


def find_importance(plan: SweepPlan, ladder: Ladder, state: SweepState) -> Importance:
    """What the trials so far say. It loads numpy and Optuna.

    Raises:
        UsageError: Optuna is missing.
    """
    rung, number = judged_rung(plan, ladder, state)
    if number < LEAST_TRIALS:
        return Importance(ladder.rungs[rung], number)
    asked = [AskedTrial(trial.point, trial.stand) for trial in state.searched]
    values = values_at(SearchQuestion(plan.space, plan.seed, ladder, asked), rung)
    told = [(one.point, value) for one, value in zip(asked, values, strict=True) if value is not None]
    points, results = [point for point, _ in told], [value for _, value in told]
    measured = _divergences(plan, ladder, points, results)
    draw = random.Random(plan.seed)
    by_chance = [_divergences(plan, ladder, points, draw.sample(results, len(results))) for _ in range(SHUFFLES)]
    total = sum(measured.values()) or 1.0
    keys = [
        KeyImportance(key, value / total, value <= max(one[key] for one in by_chance))
        for key, value in sorted(measured.items(), key=lambda one: -one[1])
    ]
    return Importance(ladder.rungs[rung], len(told), tuple(keys))


def _divergences(
    plan: SweepPlan, ladder: Ladder, points: Sequence[Mapping[str, Any]], values: Sequence[float]
) -> dict[str, float]:
    optuna = optuna_library()
    study = optuna.create_study(direction="maximize" if ladder.greater_is_better else "minimize")
    distributions = {one.key: as_distribution(one) for one in plan.space}
    for point, value in zip(points, values, strict=True):
        params = as_parameters(plan.space, point)
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that equal results leave no best quarter: then every key is chance
        found: dict[str, float] = evaluator.evaluate(study, params=[one.key for one in plan.space])
    return found


def importance_notes(found: Importance, metric: str) -> list[str]:
    """In words: what was computed of which trials, and what the shares do not say."""
    at = f" at step {found.step}" if found.step else ""
    if not found.is_known:
        return [
            f"Too few trials to tell which key matters: {found.num_trials} of {LEAST_TRIALS} have a value{at}. With "
            "fewer, shares are those of luck."
        ]
    lines = [f"What sets the best quarter of {found.num_trials} trials apart, by their {metric}{at} (PED-ANOVA)."]
    chance = [one.key for one in found.keys if one.is_chance]
    if chance:
        head = "No key can be told from chance" if len(chance) == len(found.keys) else "chance"
        lines.append(f"{head}: results that are shuffled among the trials {SHUFFLES} times give as much.")
    return lines


def importance_lines(found: Importance, metric: str) -> list[str]:
    """The same with the share of each key, as lines."""
    head, *notes = importance_notes(found, metric)
    width = max((len(one.key) for one in found.keys), default=0)
    keys = [f"  {one.key:<{width}}  {one.share:4.0%}{'  chance' * one.is_chance}" for one in found.keys]
    return [head, *keys, *notes]


def ask_importance(view: "SweepView") -> Importance:
    """The same, from a process of its own; without one where there are too few trials.

    Raises:
        UsageError: Optuna is missing, or the process failed.
    """
    rung, number = judged_rung(view.plan, view.ladder, view.state)
    if number < LEAST_TRIALS:
        return Importance(view.ladder.rungs[rung], number)
    command = [sys.executable, "-P", "-m", "ftui.sweep.results.importance", str(view.files.folder)]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROCESS_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"The importance was not there after {PROCESS_SECONDS:.0f} s.") from error
    if ended.returncode:
        raise UsageError(ended.stderr.decode(errors="replace").strip()[-500:] or "The importance was not computed.")
    return msgspec.json.decode(ended.stdout, type=Importance)


def main(arguments: Sequence[str]) -> int:
    """Print the importance of the keys of one sweep."""
    from ftui.sweep.results.sweep_results import view_sweep
    from ftui.sweep.sweep_files import SweepFiles

    try:
        view = view_sweep(SweepFiles(Path(arguments[0])))
        found = find_importance(view.plan, view.ladder, view.state)
    except FtuiError as error:
        print(f"{error.message} {error.hint}".rstrip(), file=sys.stderr)
        return error.exit_code
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
