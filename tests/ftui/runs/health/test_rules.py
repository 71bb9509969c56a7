"""The statistical rules on made-up courses: what each finds, what it leaves alone, and what it says."""

import math
from typing import Any

import pytest

from ftui.runs.events import AnyRecord
from ftui.runs.health.forecasts import seconds_left
from ftui.runs.health.health_rules import AMBER, OF_ROLLOUTS, RED, RULES, HealthFinding, Thresholds
from ftui.runs.health.loss_curve import nothing_learned, plateau
from ftui.runs.health.paired_rows import overfitting, too_few_rows
from ftui.runs.health.step_monitor import StepMonitor
from ftui.runs.health.step_pace import slow_steps
from tests.bench.health.curves import FAULTS, Curve
from tests.bench.health.measure import findings
from tests.support.events import make_evaluation, make_run_started, make_step

LIMITS = Thresholds()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_by_its_rule_after_it_began(fault: str) -> None:
    rule, change = FAULTS[fault]
    curve = Curve(5)
    start = change(curve)
    told = [step for step, finding in findings(curve.records(), LIMITS) if finding.rule == rule]
    assert told and told[0] >= start


def test_sound_courses_are_left_alone() -> None:
    told = [finding.evidence for seed in range(2000, 2003) for _, finding in findings(Curve(seed).records(), LIMITS)]
    assert told == []


def test_every_threshold_is_of_a_rule() -> None:
    assert set(Thresholds.__struct_fields__) <= {*AMBER, *OF_ROLLOUTS}
    assert len(RULES) == len(RED) + len(AMBER) + len(OF_ROLLOUTS)


def noisy(number: int, targets: int = 1000, **fields: Any) -> AnyRecord:
    sway = math.sin(number * 12.9898) * 0.05 / math.sqrt(targets / 1000)
    figures = {
        "loss": 3.0 - 0.3 * math.log(number) + sway,
        "grad_norm": (0.5 + sway) / math.sqrt(targets / 1000),
        "time": float(number),
    }
    return make_step(number, num_target_tokens=targets, **(figures | fields))


def tell(records: list[AnyRecord], stage: str = "sft", off: tuple[str, ...] = ()) -> list[HealthFinding]:
    monitor = StepMonitor(LIMITS, stage=stage, max_grad_norm=1.0, rules_off=off)
    return [finding for record in records for finding in monitor.read(record)]


def test_a_step_of_few_tokens_may_scatter_more() -> None:
    """Both have the same loss; as many tokens as usual make it a spike, a tenth of them do not."""
    course = [noisy(number) for number in range(1, 60)]
    many = make_step(60, loss=6.0, grad_norm=0.5, num_target_tokens=1000)
    few = make_step(60, loss=6.0, grad_norm=1.6, num_target_tokens=100)
    assert [one.rule for one in tell([*course, many])] == ["spike"]
    assert tell([*course, few]) == []


def test_a_long_gradient_of_a_short_step_is_usual() -> None:
    course = [noisy(number) for number in range(1, 60)]
    assert tell([*course, make_step(60, loss=1.8, grad_norm=5.0, num_target_tokens=10)]) == []
    (found,) = tell([*course, make_step(60, loss=1.8, grad_norm=5.0, num_target_tokens=1000)])
    assert found.rule == "gradient_spike" and "9.9 times the usual for 1000 target tokens" in found.evidence


@pytest.mark.parametrize("bad", [math.nan, None])
def test_a_nan_in_the_window_hides_no_spike(bad: float | None) -> None:
    course = [noisy(number) if number % 10 else noisy(number, loss=bad) for number in range(1, 90)]
    assert [one.rule for one in tell([*course, noisy(91, loss=9.0)])] == ["spike"]


def test_an_alarm_is_told_once_and_no_sooner_again_than_in_a_minute() -> None:
    """Every tenth second there is a spike: the next one is told when a minute has passed and it had been over."""
    course = [
        noisy(number, loss=9.0) if number > 60 and number % 60 == 1 else noisy(number) for number in range(1, 400)
    ]
    told = tell(course)
    assert [one.rule for one in told] == ["spike"] * 6
    often = [noisy(number, loss=9.0) if number > 60 and number % 55 == 1 else noisy(number) for number in range(1, 400)]
    assert len(tell(often)) == 3
    assert tell(course, off=("spike",)) == []


def test_what_lasts_is_told_when_it_begins() -> None:
    course = [noisy(number, data_seconds=1.0 if number > 100 else 0.0) for number in range(1, 400)]
    (found,) = tell(course)
    assert found.rule == "data_starvation" and "% of the newest 20 steps" in found.evidence


def test_the_loss_of_pairs_is_no_loss_of_tokens() -> None:
    course = [*(noisy(number) for number in range(1, 60)), noisy(60, loss=9.0)]
    assert tell(course, stage="dpo") == []


def test_other_rows_are_not_compared_with_those_before() -> None:
    course = [*(noisy(number) for number in range(1, 60)), make_run_started(), noisy(60, loss=9.0)]
    assert tell(course) == []


def test_a_plateau_is_one_at_a_high_rate_only() -> None:
    evaluations = [(50, 2.0), (100, 1.5), (150, 1.5002), (200, 1.5001), (250, 1.5)]
    high = [make_step(number, learning_rate=1e-4) for number in range(100, 251)]
    low = [make_step(number, learning_rate=1e-4 if number < 200 else 1e-5) for number in range(100, 251)]
    found = plateau(high, 1e-4, evaluations, LIMITS.plateau)
    assert found is not None and "in 4 evaluations from step 100 to 250" in found.evidence
    assert plateau(low, 1e-4, evaluations, LIMITS.plateau) is None
    assert plateau(high, 1e-4, [*evaluations[:-1], (250, 1.49)], LIMITS.plateau) is None
    assert plateau(high, 1e-4, evaluations[2:], LIMITS.plateau) is None


def test_a_rate_of_zero_is_no_fault_of_the_rows() -> None:
    steps = [make_step(number, loss=2.0 + number % 2, learning_rate=0.0) for number in range(1, 400)]
    assert nothing_learned(steps[:50], steps, 0.0) is None


def test_steps_of_other_lengths_are_not_slow() -> None:
    """Half the pace at a quarter of the tokens is what small steps have; at as many tokens it is a fault."""
    first = [make_step(number, num_tokens=4000, tokens_per_second=1000.0) for number in range(100)]
    short = [make_step(number, num_tokens=1000, tokens_per_second=500.0) for number in range(20)]
    alike = [make_step(number, num_tokens=4100, tokens_per_second=500.0) for number in range(20)]
    assert slow_steps(first, short, 0.3) is None
    found = slow_steps(first, alike, 0.3)
    assert found is not None and "500 tokens a second in the newest 20 steps, 1000 in earlier" in found.evidence


def test_overfitting_is_seen_row_by_row() -> None:
    """Rows differ by far more than they rise: unpaired nobody could tell."""
    best = [1.0 + row % 7 for row in range(100)]
    worse = [loss + 0.05 + 0.02 * math.sin(row) for row, loss in enumerate(best)]
    mixed = [loss + 0.05 * (-1) ** row for row, loss in enumerate(best)]
    found = overfitting(200, best, 400, worse, 3.0)
    assert found is not None and found.evidence.startswith("100 of 100 evaluation rows are worse at step 400 than at")
    assert overfitting(200, best, 400, mixed, 3.0) is None
    unsure = [loss + 0.05 + 0.5 * math.sin(10 * row) for row, loss in enumerate(best)]
    assert overfitting(200, best, 400, unsure, 3.0) is None, "a mean rise of 1.4 of its standard errors"
    assert overfitting(200, best[:19], 400, worse[:19], 3.0) is None
    assert too_few_rows(19).startswith("19 evaluation rows are too few to tell") and not too_few_rows(20)


def test_a_forecast_is_made_of_a_steady_decrease() -> None:
    times = [float(second) for second in range(600)]
    steady = [1000.0 - second for second in times]
    left = seconds_left(times, steady)
    assert left is not None and 390 < left < 410
    assert seconds_left(times, [1000.0 - 100 * (second % 60 < 30) for second in times]) is None  # saved, deleted
    assert seconds_left(times, [1000.0 if second < 300 else 400.0 for second in times]) is None  # taken once
    assert seconds_left(times[:100], steady[:100]) is None
    assert seconds_left(times, [1000.0 - 80 * math.log1p(second) for second in times]) is None  # slower and slower


def test_requested_evaluations_are_no_course() -> None:
    course = [make_evaluation(number, loss=1.5, requested=True) for number in range(50, 400, 50)]
    steps = [noisy(number, loss=3 - number / 200 + 0.01 * (number % 3)) for number in range(1, 400)]
    assert tell([*steps[:300], *course, *steps[300:]]) == []
