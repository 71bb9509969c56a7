"""What a sweep will take: steps by the promotions that its rule makes; time and money by the estimate of a trial."""

import random
from dataclasses import dataclass

from ftui.estimate.result import Estimate
from ftui.sweep.promotion import Ladder, TrialStand, next_leader, next_promotion
from ftui.sweep.sweep_plan import SweepPlan


@dataclass(frozen=True)
class Forecast:
    """Of all trials: steps, starts (a promotion is one more), trials that reach each rung. `None`: not known.

    Attributes:
        full_steps: what the same number of whole trials would take.
        hours, dollars: low and high of all trials on their cards, without loading; of one trial to the last rung
            `trial_hours`, `trial_dollars`.
    """

    steps: int | None
    full_steps: int | None
    starts: int
    reached: tuple[int, ...]
    hours: tuple[float, float] | None
    dollars: tuple[float, float] | None
    trial_hours: tuple[float, float] | None
    trial_dollars: tuple[float, float] | None


def forecast(plan: SweepPlan, trial: Estimate, price: float | None, num_paid: int = 0) -> Forecast:
    """The forecast from the estimate of the largest trial at its full length; `price` in dollars per card and hour.

    `num_paid`: cards of a trial that cost money, where they are more than those of the estimate.
    """
    duration = trial.duration
    horizon = plan.rungs[-1] if plan.rungs else duration.num_steps
    trials = _play(plan)
    reached = tuple(sum(max(one.results) >= rung for one in trials) for rung in range(max(1, len(plan.rungs))))
    starts = sum(len(one.results) for one in trials)
    steps = None if horizon is None else _steps(plan.rungs or (horizon,), reached)
    of_trial = None
    if duration.step_seconds is not None and horizon is not None:
        hours = duration.step_seconds * horizon / 3600
        of_trial = (hours * (1 - duration.spread), hours * (1 + duration.spread))
    share = None if steps is None or horizon is None else steps / horizon
    of_all = None if of_trial is None or share is None else (of_trial[0] * share, of_trial[1] * share)
    cards = None if price is None else price * max(trial.num_cards, num_paid)
    return Forecast(
        steps, None if horizon is None else horizon * plan.trials, starts, reached, of_all, _times(of_all, cards),
        of_trial, _times(of_trial, cards),
    )  # fmt: skip


def _times(hours: tuple[float, float] | None, price: float | None) -> tuple[float, float] | None:
    return None if hours is None or price is None else (hours[0] * price, hours[1] * price)


def _steps(rungs: tuple[int, ...], reached: tuple[int, ...]) -> int:
    lengths = [rung - before for rung, before in zip(rungs, (0, *rungs), strict=False)]
    return sum(number * length for number, length in zip(reached, lengths, strict=True))


def _play(plan: SweepPlan) -> list[TrialStand]:
    """All trials of a sweep whose values are luck, the same at each rung."""
    rungs = plan.rungs or (0,)
    ladder = Ladder(rungs, plan.eta, len(rungs) if plan.scheduler == "hyperband" else 1)
    trials: list[TrialStand] = []
    draw = random.Random(0)
    while True:
        is_asking = len(trials) < plan.trials
        move = next_promotion(ladder, trials, is_asking=is_asking)
        if move is None and is_asking:
            number = len(trials)
            bracket = ladder.bracket_of(number)
            trials.append(TrialStand(number, bracket, {bracket: draw.random()}))
            continue
        move = move or next_leader(ladder, trials, max(plan.finish, plan.repeat_top))
        if move is None:
            return trials
        trial, rung = move
        trials[trial.number] = TrialStand(
            trial.number, trial.bracket, {**trial.results, rung: trial.results[max(trial.results)]}
        )
