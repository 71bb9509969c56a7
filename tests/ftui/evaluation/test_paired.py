"""Intervals against published tables, and how often they see a rise that is there."""

import random
import statistics

import pytest

from ftui.evaluation.paired import FEWEST_ROWS, TOO_FEW, MeanDifference, paired_difference, t_value

# Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008), table G.2, p = 99.73 %
GUM = {1: 235.80, 2: 19.21, 3: 9.22, 4: 6.62, 5: 5.51, 6: 4.90, 7: 4.53, 8: 4.28, 9: 4.09, 10: 3.96, 20: 3.42,
       50: 3.16, 100: 3.077}  # fmt: skip


@pytest.mark.parametrize(("num_degrees", "value"), GUM.items())
def test_t_values_are_those_of_the_table(num_degrees: int, value: float) -> None:
    assert t_value(num_degrees) == pytest.approx(value, abs=0.0051 if value < 100 else 0.05)


def test_many_rows_lead_to_the_normal_value() -> None:
    assert t_value(1999) == pytest.approx(3.0, abs=0.005) and t_value(10**6) == 3.0


def test_the_difference_is_the_paired_t_test() -> None:
    differences = [0.3, -0.1, 0.4, 0.2, 0.25]
    found = paired_difference(differences)
    assert found
    error = statistics.stdev(differences) / 5**0.5
    assert found.mean == pytest.approx(0.21) and found.high - found.mean == pytest.approx(6.62 * error, rel=1e-3)
    assert found == paired_difference(differences, [1.0] * 5)


def test_sums_over_unlike_numbers_of_tokens_have_the_error_of_a_ratio() -> None:
    """Against the spread of that ratio over samples drawn anew."""
    draw = random.Random(3)

    def sample() -> tuple[list[float], list[float]]:
        sizes = [float(draw.randint(1, 20)) for _ in range(50)]
        return [sum(draw.gauss(0.1, 1.0) for _ in range(int(size))) for size in sizes], sizes

    found = [paired_difference(*sample()) for _ in range(400)]
    means = [one.mean for one in found if one]
    widths = [one.high - one.mean for one in found if one]
    assert statistics.mean(means) == pytest.approx(0.1, abs=0.01)
    assert statistics.mean(widths) / t_value(49) == pytest.approx(statistics.stdev(means), rel=0.1)


@pytest.mark.parametrize(("rows", "least", "most"), [(100, 0.95, 1.0), (20, 0.05, 0.4)])
def test_a_rise_of_a_twentieth_is_seen_in_a_hundred_rows_but_only_in_pairs(
    rows: int, least: float, most: float
) -> None:
    """Losses of 2 +- 0.8 nats that rise by 0.05 +- 0.1: what each row differs by is what counts."""
    draw, trials = random.Random(11), 500
    seen = seen_apart = false = 0
    for _ in range(trials):
        before = [draw.gauss(2.0, 0.8) for _ in range(rows)]
        noise = [draw.gauss(0.0, 0.1) for _ in range(rows)]
        risen, unchanged = paired_difference([one + 0.05 for one in noise]), paired_difference(noise)
        assert risen and unchanged
        seen += risen.low > 0
        false += unchanged.low > 0
        after = [draw.gauss(2.05, 0.8) for _ in range(rows)]  # of other rows
        error = (2 * statistics.variance(before) / rows) ** 0.5
        seen_apart += (statistics.fmean(after) - statistics.fmean(before)) / error > 3
    assert least <= seen / trials <= most
    assert false / trials <= 0.004 and seen_apart / trials <= 0.02


VERDICTS = (
    (MeanDifference(-0.2, -0.3, -0.1, 50), False, "better"), (MeanDifference(-0.2, -0.3, -0.1, 50), True, "worse"),
    (MeanDifference(0.2, 0.1, 0.3, 50), None, "more"), (MeanDifference(-0.2, -0.3, -0.1, 50), None, "less"),
    (MeanDifference(0.2, -0.1, 0.5, 50), True, TOO_FEW),
    (MeanDifference(0.0, 0.0, 0.0, 50), True, "the same on every row"),
    (MeanDifference(0.2, 0.1, 0.3, FEWEST_ROWS - 1), True, TOO_FEW),
)  # fmt: skip


@pytest.mark.parametrize(("difference", "greater_is_better", "verdict"), VERDICTS)
def test_verdicts(difference: MeanDifference, greater_is_better: bool | None, verdict: str) -> None:
    assert difference.verdict(greater_is_better) == verdict


def test_one_row_has_no_spread() -> None:
    assert paired_difference([1.0]) is None and paired_difference([]) is None
