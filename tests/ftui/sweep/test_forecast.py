"""What a sweep will take, and that a budget below one trial is refused."""

from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.estimate.result import Duration, Estimate
from ftui.sweep.forecast import forecast
from ftui.sweep.start_sweep import check_budget
from ftui.sweep.sweep_plan import PlanReader, plan_of

PLAN = """profile = "quickstart"
[search]
"train.learning_rate" = [1e-4, 2e-4]
[method]
sampler = "random"
scheduler = "{scheduler}"
rungs = [10, 30, 90]
[budget]
trials = 27
{budget}
"""


def an_estimate(step_seconds: float | None) -> Estimate:
    duration = Duration(90, None, step_seconds, None, None, 0.25, "closed form")
    return Estimate("card", 2, "fits", None, duration, None, None, None, None)


@pytest.mark.parametrize(
    ("scheduler", "steps", "starts"), [("asha", (500, 800), (38, 46)), ("hyperband", (700, 1200), (34, 46))]
)
def test_a_forecast(scheduler: str, steps: tuple[int, int], starts: tuple[int, int]) -> None:
    """27 trials to step 10, about 9 of them to 30 and 3 to 90: 270 + 180 + 180 steps; promotions that come too early
    are more, and those that wait for others in a bracket of a few trials are fewer."""
    plan = plan_of(PLAN.format(scheduler=scheduler, budget=""), Path("lr.toml"))
    cost = forecast(plan, an_estimate(4.0), 1.5)
    assert cost.steps is not None and steps[0] <= cost.steps <= steps[1] and cost.full_steps == 2430
    assert starts[0] <= cost.starts <= starts[1] and cost.reached[0] == 27
    assert cost.trial_hours == pytest.approx((0.075, 0.125))
    assert cost.hours is not None and cost.dollars is not None
    assert cost.hours[1] == pytest.approx(0.125 * cost.steps / 90)
    assert cost.dollars[1] == pytest.approx(cost.hours[1] * 3.0), "two cards of $1.5"
    more = forecast(plan, an_estimate(4.0), 1.5, num_paid=8)
    assert more.dollars is not None and more.dollars[1] == pytest.approx(cost.hours[1] * 12.0), "[run] gpus = 8"


def test_what_is_not_known_is_not_told() -> None:
    text = PLAN.format(scheduler="asha", budget="hours = 0.01")
    plan = plan_of(text, Path("lr.toml"))
    cost = forecast(plan, an_estimate(None), 1.5)
    assert (cost.hours, cost.dollars, cost.trial_hours) == (None, None, None) and cost.steps is not None
    check_budget(plan, cost, PlanReader(text, Path("lr.toml")), 1.5)


@pytest.mark.parametrize("budget", ["hours = 0.05", "money = 0.1", "hours = 0.08", "money = 30"])
def test_a_budget_below_one_trial_is_refused(budget: str) -> None:
    text = PLAN.format(scheduler="asha", budget=budget)
    plan = plan_of(text, Path("lr.toml"))
    cost = forecast(plan, an_estimate(4.0), 1.5)
    if budget in ("hours = 0.08", "money = 30"):  # it may do
        check_budget(plan, cost, PlanReader(text, Path("lr.toml")), 1.5)
        return
    with pytest.raises(ProfileError) as caught:
        check_budget(plan, cost, PlanReader(text, Path("lr.toml")), 1.5)
    assert "lr.toml:10: budget." in caught.value.message and "or more" in caught.value.hint


def test_an_amount_of_money_needs_a_price() -> None:
    text = PLAN.format(scheduler="asha", budget="money = 30")
    plan = plan_of(text, Path("lr.toml"))
    with pytest.raises(ProfileError, match="what an hour of this card costs") as caught:
        check_budget(plan, forecast(plan, an_estimate(4.0), None), PlanReader(text, Path("lr.toml")), None)
    assert "hardware.price_per_hour" in caught.value.hint
