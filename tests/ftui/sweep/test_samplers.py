"""What each sampler asks: the same after a kill, within the space, and better than chance where it learns."""

import itertools
import math
import random
import sys
from typing import Any

import optuna
import pytest

from ftui.errors import UsageError
from ftui.sweep import samplers
from ftui.sweep.promotion import Ladder, TrialStand
from ftui.sweep.samplers import AskedTrial, SearchQuestion, ask, check_sampler, population_size, values_at
from ftui.sweep.space import Dimension, ValueList, ValueRange

SPACE: tuple[Dimension, ...] = (ValueRange("rate", 1e-5, 1e-1, log=True), ValueRange("decay", 0.0, 1.0))
MIXED: tuple[Dimension, ...] = (*SPACE, ValueList("r", (8, 16, 32)), ValueRange("layers", 1, 6))


def loss(point: Any) -> float:
    """Least, 0, at a rate of 1e-3 and a decay of 0.3."""
    return float(math.log10(point["rate"] / 1e-3) ** 2 + (point["decay"] - 0.3) ** 2 + point.get("r", 8) / 100)


def search(sampler: str, number: int, space: tuple[Dimension, ...] = MIXED, seed: int = 0) -> list[AskedTrial]:
    """So many trials, one after the other, each with a value at the only rung."""
    asked: list[AskedTrial] = []
    for count in range(number):
        point = ask(sampler, SearchQuestion(space, seed, Ladder((9,)), asked))
        assert point is not None
        asked.append(AskedTrial(point, TrialStand(count, results={0: loss(point)})))
    return asked


def within(dimension: Dimension, value: Any) -> bool:
    if isinstance(dimension, ValueList):
        return value in dimension.values
    return dimension.low <= value <= dimension.high and isinstance(value, int) == dimension.is_whole


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe", "cmaes"])
def test_points_are_of_the_space_and_the_same_each_time(sampler: str) -> None:
    space = SPACE if sampler == "cmaes" else MIXED
    points = [one.point for one in search(sampler, 13, space)]
    assert all(within(dimension, point[dimension.key]) for point in points for dimension in space)
    assert points == [one.point for one in search(sampler, 13, space)]
    assert points != [one.point for one in search(sampler, 13, space, seed=1)]
    assert len({str(point) for point in points}) == 13


@pytest.mark.parametrize(("sampler", "number"), [("tpe", 40), ("cmaes", 60)])
def test_what_learns_comes_closer_than_chance(sampler: str, number: int) -> None:
    def mean_of_last(name: str) -> float:
        found = [loss(one.point) for seed in range(3) for one in search(name, number, SPACE, seed)[-10:]]
        return sum(found) / len(found)

    assert mean_of_last(sampler) < mean_of_last("random") / 3


@pytest.mark.slow
def test_a_gaussian_process_comes_closer_than_chance() -> None:
    found = [loss(one.point) for one in search("gp", 16, SPACE)]
    assert min(found) < min(loss(one.point) for one in search("random", 16, SPACE))
    assert found == [loss(one.point) for one in search("gp", 16, SPACE)]


def test_tpe_asks_what_optuna_asks() -> None:
    """With the same history and seed. Trials below the last rung are pruned ones, in its words."""
    ladder = Ladder((10, 30))
    points = [{"rate": 10.0 ** -(1 + n % 5), "decay": n / 20} for n in range(14)]
    told = [
        AskedTrial(p, TrialStand(n, results={0: loss(p)} if n % 3 else {0: loss(p), 1: loss(p) / 2}))
        for n, p in enumerate(points)
    ]
    question = SearchQuestion(SPACE, 5, ladder, told)
    seed = random.Random("5/14").getrandbits(31)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "rate": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "decay": optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    for number, point in enumerate(points):
        pruned = number % 3 != 0
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE,
                value=None if pruned else loss(point) / 2, params=point, distributions=distributions,
                intermediate_values={10: loss(point)} if pruned else None,
            )
        )  # fmt: skip
    asked = ask("tpe", question)
    assert asked is not None
    assert asked == pytest.approx(study.ask(distributions).params, rel=1e-5)


def test_a_grid_has_every_point_once() -> None:
    space = (ValueList("a", ("x", "y")), ValueRange("b", 1, 3), ValueRange("c", 0.0, 0.2, step=0.1))
    points = [tuple(one.point.values()) for one in _grid(space, 18)]
    assert points == list(itertools.product(("x", "y"), (1, 2, 3), (0.0, 0.1, 0.2)))


def _grid(space: tuple[Dimension, ...], number: int) -> list[AskedTrial]:
    asked: list[AskedTrial] = []
    for count in range(number):
        point = ask("grid", SearchQuestion(space, 0, Ladder((9,)), asked))
        assert point is not None
        asked.append(AskedTrial(point, TrialStand(count)))
    return asked


def test_a_generation_of_cmaes_waits_for_the_one_before() -> None:
    asked = search("cmaes", population_size(2), SPACE)
    waiting = [*asked[:-1], AskedTrial(asked[-1].point, TrialStand(len(asked) - 1, target=0))]
    assert ask("cmaes", SearchQuestion(SPACE, 0, Ladder((9,)), waiting)) is None
    failed = [*asked[:-1], AskedTrial(asked[-1].point, TrialStand(len(asked) - 1, results={0: None}, is_over=True))]
    question = SearchQuestion(SPACE, 0, Ladder((9,)), failed)
    assert values_at(question, 0)[-1] == max(loss(one.point) for one in asked[:-1]), "what failed is the worst"
    assert ask("cmaes", question) is not None


@pytest.mark.parametrize(
    ("sampler", "space", "why"),
    [("grid", SPACE, "rate is a range"), ("cmaes", MIXED, "r is a list"), ("cmaes", SPACE[:1], "two keys"),
     ("tpe", MIXED, ""), ("random", MIXED, "")],
)  # fmt: skip
def test_spaces_that_a_sampler_cannot_search(sampler: str, space: tuple[Dimension, ...], why: str) -> None:
    assert why in check_sampler(sampler, space) and bool(why) == bool(check_sampler(sampler, space))


def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(UsageError) as caught:
        samplers.check_library("cmaes")
    assert "finetune-tui[search]" in caught.value.hint
