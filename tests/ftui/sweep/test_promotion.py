"""Promotions by the rule of ASHA, and what they save beside a search that stops."""

import random
from collections.abc import Callable
from statistics import mean

from ftui.sweep.promotion import Ladder, TrialStand, best_trials, next_leader, next_promotion

RUNGS = (1, 3, 9, 27)


def stands(*values: float | None) -> list[TrialStand]:
    return [TrialStand(number, results={0: value}) for number, value in enumerate(values)]


def test_one_in_eta_of_a_rung_goes_on() -> None:
    ladder = Ladder((10, 30), eta=2)
    assert next_promotion(ladder, stands(0.5)) is None
    trial, rung = next_promotion(ladder, stands(0.5, 0.4)) or (None, None)
    assert trial is not None and (trial.number, rung) == (1, 1)
    there = stands(0.5, 0.4)
    there[1] = TrialStand(1, results={0: 0.4}, target=1)
    assert next_promotion(ladder, there) is None, "it is on its way already"


def test_the_greater_is_better_where_it_is() -> None:
    trial, _ = next_promotion(Ladder((10, 30), eta=2, greater_is_better=True), stands(0.5, 0.4)) or (None, 0)
    assert trial is not None and trial.number == 0


def test_what_failed_is_worse_than_any_and_never_goes_on() -> None:
    ladder = Ladder((10, 30), eta=2)
    assert next_promotion(ladder, stands(None, None)) is None
    trial, _ = next_promotion(ladder, stands(None, 9.0)) or (None, 0)
    assert trial is not None and trial.number == 1
    assert next_leader(ladder, stands(None, None), 1) is None
    over = [TrialStand(0, results={0: 1.0}, is_over=True), TrialStand(1, results={0: 2.0})]
    leader, _ = next_leader(ladder, over, 1) or (None, 0)
    assert leader is not None and leader.number == 1


def test_the_leader_is_finished_however_few_trials_there_are() -> None:
    ladder = Ladder((10, 30, 90), eta=3)
    trials = [TrialStand(0, results={0: 0.3}), TrialStand(1, results={0: 0.5, 1: 0.2})]
    leader, rung = next_leader(ladder, trials, 1) or (None, 0)
    assert leader is not None and (leader.number, rung) == (1, 2)
    assert [trial.number for trial in best_trials(ladder, trials)] == [1, 0]


def test_brackets_are_in_hyperbands_proportions() -> None:
    """Li et al. 2017, table 1 (R = 81, eta = 3): 81, 34, 15, 8 and 5 trials begin at 1, 3, 9, 27 and 81 units."""
    ladder = Ladder((1, 3, 9, 27, 81), brackets=5)
    dealt = [ladder.bracket_of(number) for number in range(143)]
    assert [dealt.count(bracket) for bracket in range(5)] == [81, 34, 15, 8, 5]


World = Callable[[int, int], float]


def world(seed: int, number: int) -> World:
    """A search's values: curves that fall towards what each trial comes to, so that early ranks mislead somewhat."""
    draw = random.Random(seed)
    ends = [draw.random() for _ in range(number)]
    speeds = [draw.uniform(0.3, 1.0) for _ in range(number)]
    noises = [[draw.gauss(0, 0.05) for _ in RUNGS] for _ in range(number)]
    return lambda trial, rung: ends[trial] + 1.5 * RUNGS[rung] ** -speeds[trial] + noises[trial][rung]


def promoted(value: World, number: int) -> tuple[int, int]:
    """Budget in units, and the trial that was found."""
    ladder, trials = Ladder(RUNGS), list[TrialStand]()
    while True:
        is_asking = len(trials) < number
        move = next_promotion(ladder, trials, is_asking=is_asking)
        if move is None and is_asking:
            trials.append(TrialStand(len(trials), results={0: value(len(trials), 0)}))
            continue
        move = move or next_leader(ladder, trials, 2)
        if move is None:
            break
        trial, rung = move
        trials[trial.number] = TrialStand(trial.number, results={**trial.results, rung: value(trial.number, rung)})
    return sum(RUNGS[max(trial.results)] for trial in trials), best_trials(ladder, trials)[0].number


def stopped(value: World, number: int) -> tuple[int, int]:
    """The same by stopping, as Optuna's pruner does: who is not among the best so far at a rung ends there."""
    at: list[list[float]] = [[] for _ in RUNGS]
    budget = 0
    farthest: list[tuple[int, float, int]] = []
    for trial in range(number):
        for rung in range(len(RUNGS)):
            seen = value(trial, rung)
            at[rung].append(seen)
            best = sorted(at[rung])[: max(1, len(at[rung]) // 3)]
            if seen not in best or rung == len(RUNGS) - 1:
                budget += RUNGS[rung]
                farthest.append((-rung, seen, trial))
                break
    return budget, min(farthest)[2]


def test_promotion_spends_less_than_stopping_and_finds_no_worse() -> None:
    """With 32 trials it spends 79 %, and its winner is 0.29th best instead of 0.42nd, of 0 to 31.

    The rule was chosen on these same worlds (docs/sweep.md has the others that were tried): this keeps it as it is, and
    is no measure of how good it is elsewhere.
    """
    worlds, last = [world(seed, 32) for seed in range(300)], len(RUNGS) - 1
    orders = [sorted(range(32), key=lambda trial: value(trial, last)) for value in worlds]
    budgets, ranks = [], []
    for search in (promoted, stopped):
        found = [search(value, 32) for value in worlds]
        budgets.append(mean(budget for budget, _ in found))
        ranks.append(mean(order.index(best) for order, (_, best) in zip(orders, found, strict=True)))
    assert budgets[0] <= 0.8 * budgets[1]
    assert ranks[0] <= ranks[1]


def test_no_trial_goes_on_early_while_more_will_come() -> None:
    """Of the first eta^2 none is promoted for having been early; when all are there, one in eta goes on at once."""
    ladder = Ladder((10, 30), eta=2)
    assert next_promotion(ladder, stands(0.5, 0.4, 0.3), is_asking=True) is None
    trial, _ = next_promotion(ladder, stands(0.5, 0.4, 0.3, 0.2), is_asking=True) or (None, 0)
    assert trial is not None and trial.number == 3
    assert next_promotion(ladder, stands(0.5, 0.4, 0.3)) is not None
