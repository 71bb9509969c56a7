"""Importance of keys: the process that computes it, what it finds of keys that matter or do not, too few trials."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ftui.sweep.results.importance import LEAST_TRIALS, ask_importance, find_importance, importance_lines
from ftui.sweep.results.sweep_results import SweepView, view_sweep
from ftui.sweep.sweep_files import SweepFiles, SweepState
from tests.support.played_sweep import PLAN, play

MakeSweep = Callable[..., SweepFiles]
DECAY = '"train.weight_decay" = { low = 0.0, high = 0.1 }\n[search.derived]'
MANY = PLAN.replace("trials = 8", "trials = 40").replace("[search.derived]", DECAY)


def played(make_sweep: MakeSweep, plan: str) -> SweepView:
    files = make_sweep(plan)
    play(files)
    return view_sweep(files)


def test_with_few_trials_nothing_is_told(make_sweep: MakeSweep) -> None:
    view = played(make_sweep, PLAN)
    found = ask_importance(view)
    assert not found.is_known and found.num_trials == 8
    (line,) = importance_lines(found, "loss")
    assert line.startswith(f"Too few trials to tell which key matters: 8 of {LEAST_TRIALS} have a value at step 10.")


@pytest.mark.slow
def test_a_key_that_matters_is_told_from_those_that_do_not(make_sweep: MakeSweep) -> None:
    """The loss has (log learning rate)^2 and no weight decay: what Optuna's own call gives, and what chance gives."""
    view = played(make_sweep, MANY)
    found = ask_importance(view)
    assert found == find_importance(view.plan, view.ladder, view.state), "another process comes to the same"
    shares = {one.key: one for one in found.keys}
    assert found.keys[0].key == "train.learning_rate" and not found.keys[0].is_chance
    assert shares["train.weight_decay"].is_chance
    assert sum(one.share for one in found.keys) == pytest.approx(1)
    assert found.step == 10 and found.num_trials == 40


@pytest.mark.slow
def test_where_no_key_matters_it_is_chance(make_sweep: MakeSweep) -> None:
    """Of keys without effect one in forty is said to have one: of nine at most one."""
    view, found = played(make_sweep, MANY), []
    for seed in range(3):
        luck = random.Random(seed).sample(range(40), 40)
        trials = [replace(trial, results={0: float(luck[trial.number])}) for trial in view.state.trials]
        found.append(find_importance(view.plan, view.ladder, SweepState(trials=tuple(trials))))
    assert sum(not one.is_chance for each in found for one in each.keys) <= 1
    all_chance = next(one for one in found if all(key.is_chance for key in one.keys))
    assert importance_lines(all_chance, "loss")[-1].startswith("No key can be told from chance")
