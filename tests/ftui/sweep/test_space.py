"""Places from 0 to 1 become values of the space, and rules over keys numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftui.sweep.derived_values import evaluate
from ftui.sweep.space import ValueList, ValueRange, corners

PLACES = st.floats(0, 1, exclude_max=True)


@given(PLACES, st.booleans(), st.integers(1, 50), st.integers(1, 50))
def test_whole_numbers_stay_within_both_ends(place: float, log: bool, low: int, more: int) -> None:
    value = ValueRange("k", low, low + more, log=log).at(place)
    assert isinstance(value, int) and low <= value <= low + more


def test_every_whole_number_is_as_likely_as_the_next() -> None:
    drawn = [ValueRange("k", 1, 4).at((n + 0.5) / 400) for n in range(400)]
    assert [drawn.count(value) for value in (1, 2, 3, 4)] == [100, 100, 100, 100]


@given(PLACES)
def test_orders_of_magnitude_are_drawn_evenly(place: float) -> None:
    value = ValueRange("k", 1e-5, 1e-3, log=True).at(place)
    assert 1e-5 <= value <= 1e-3 and math.isclose(math.log10(value), -5 + 2 * place, abs_tol=1e-4)


@given(PLACES)
def test_steps(place: float) -> None:
    stepped = ValueRange("k", 0.0, 0.3, step=0.1)
    assert stepped.values == (0.0, 0.1, 0.2, 0.3) and stepped.at(place) in stepped.values


def test_corners_have_every_value_of_a_list_and_both_ends_of_a_range() -> None:
    points = corners([ValueList("a", (1, 2, 3)), ValueRange("b", 0.5, 2.0)])
    assert [point["a"] for point in points] == [1, 2, 3] and {point["b"] for point in points} == {0.5, 2.0}


@pytest.mark.parametrize(
    ("rule", "value"),
    [("2 * adapter.r", 32), ("adapter.r / 2", 8), ("min(adapter.r, 4) ** 1", None), ("-adapter.r + 20", 4),
     ("sqrt(adapter.r)", 4), ("train.learning_rate * 1e4", 2.0)],
)  # fmt: skip
def test_rules(rule: str, value: float | None) -> None:
    values = {"adapter.r": 16, "train.learning_rate": 2e-4, "adapter.use_dora": True}
    if value is None:
        with pytest.raises(ValueError, match="cannot stand in it"):
            evaluate(rule, values)
    else:
        assert evaluate(rule, values) == pytest.approx(value)
        assert isinstance(evaluate(rule, values), int) == (value == int(value))


@pytest.mark.parametrize(
    "rule",
    ["__import__('os')", "adapter.rank", "1 / 0", "adapter.use_dora", "'a'", "9 ** 9 ** 9", "(1).real", "",
     "1e308 * 10", "lambda: 1", "[1]", "x" * 300],
)  # fmt: skip
def test_rules_that_are_none(rule: str) -> None:
    with pytest.raises(ValueError):
        evaluate(rule, {"adapter.r": 16, "adapter.use_dora": True})
