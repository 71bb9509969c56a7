"""Who is to blame for a step, on ledgers made for it; and how rows were learned."""

import numpy as np
import pytest

from ftui.engine.ledger.learning import row_courses, seen_before
from ftui.engine.ledger.ledger_file import ROW, Ledger
from ftui.engine.ledger.spikes import explain_spike, largest_spike, step_losses

SPIKE = 30


def make(losses: np.ndarray, counts: np.ndarray | None = None) -> Ledger:
    """A ledger of mean losses (steps, rows a step); every row comes again after five steps."""
    steps, size = losses.shape
    rows = np.zeros(losses.size, ROW)
    rows["number"] = [(step % 5) * size + place for step in range(steps) for place in range(size)]
    rows["count"] = 10 if counts is None else counts.reshape(-1)
    rows["loss"] = losses.reshape(-1) * rows["count"]
    return Ledger(rows, np.repeat(np.arange(1, steps + 1), size), "")


def healthy(seed: int, rows: int = 8) -> np.ndarray:
    """A loss that falls from 4 to 2, with the noise of rows."""
    chance = np.random.default_rng(seed)
    course = 2 + 2 * np.exp(-np.arange(60) / 20)
    return np.asarray(course[:, None] + chance.normal(0, 0.2, (60, rows)))


@pytest.mark.parametrize("seed", range(20))
def test_a_bad_row_is_named_and_a_bad_step_is_not_one_of_a_row(seed: int) -> None:
    losses = healthy(seed)
    losses[SPIKE - 1, 3] += 6
    ledger = make(losses)
    spike = explain_spike(ledger, step_losses(ledger), SPIKE)
    assert largest_spike(step_losses(ledger)) == SPIKE
    assert (spike.verdict, spike.order[0], spike.lasts) == ("rows", 3, 0)
    losses = healthy(seed)
    losses[SPIKE - 1 : SPIKE + 3] += 1.5
    ledger = make(losses)
    spike = explain_spike(ledger, step_losses(ledger), SPIKE)
    assert (spike.verdict, spike.lasts) == ("model", 3)


def test_healthy_steps_are_seldom_called_spikes() -> None:
    verdicts = []
    for seed in range(10):
        ledger = make(healthy(seed))
        steps = step_losses(ledger)
        verdicts += [explain_spike(ledger, steps, step).verdict for step in range(20, 61)]  # earlier the curve is bent
    assert sum(verdict != "no spike" for verdict in verdicts) <= 0.05 * len(verdicts)


def test_rows_that_are_not_finite_are_to_blame_unless_all_are() -> None:
    losses = healthy(1)
    losses[SPIKE - 1, 5] = np.nan
    ledger = make(losses)
    spike = explain_spike(ledger, step_losses(ledger), SPIKE)
    assert (spike.verdict, spike.order[0]) == ("rows", 5) and largest_spike(step_losses(ledger)) == SPIKE
    losses[SPIKE - 1] = np.inf
    assert explain_spike(make(losses), step_losses(make(losses)), SPIKE).verdict == "model"


def test_few_steps_and_single_rows_are_not_judged_by_guess() -> None:
    short = make(healthy(1)[:5])
    assert largest_spike(step_losses(short)) is None
    assert explain_spike(short, step_losses(short), 3).verdict == "unclear"
    alone = healthy(1, rows=1)
    alone[SPIKE - 1] += 6
    ledger = make(alone)
    assert explain_spike(ledger, step_losses(ledger), SPIKE).verdict == "rows", "the next step is as usual"
    alone[SPIKE] += 6
    assert explain_spike(make(alone), step_losses(make(alone)), SPIKE).verdict == "unclear"


def test_the_loss_of_a_step_is_the_mean_over_its_tokens() -> None:
    losses, counts = np.array([[1.0, 4.0]]), np.array([[30, 10]])
    assert step_losses(make(losses, counts)).losses.tolist() == [1.75]


def test_courses_of_rows() -> None:
    chance = np.random.default_rng(0)
    by_epoch = np.array([3.0, 2.0, 1.0, 0.8])[:, None] + chance.normal(0, 0.01, (4, 40))
    by_epoch[:, 7] = 3.1, 3.1, 3.0, 3.05
    by_epoch[:, 11] = 3.0, 0.5, 0.6, 2.4
    by_epoch[:, 23] = 3.0, 0.1, 0.1, 0.1
    by_epoch[:, 31] = 0.01, 0.01, 0.01, 0.01
    ledger = make(by_epoch.reshape(20, 8))
    courses = row_courses(ledger)
    found = {name: courses.find(name).tolist() for name in ("never_learned", "forgotten", "learned_at_once")}
    assert found == {"never_learned": [7], "forgotten": [11], "learned_at_once": [31, 23, 11]}
    assert courses.best[11] == pytest.approx(0.5) and (courses.times == 4).all()


def test_what_a_row_was_before() -> None:
    losses = healthy(2)
    ledger = make(losses)
    before, steps = seen_before(ledger, 12)
    assert steps.tolist() == [7] * 8 and before == pytest.approx(losses[6], rel=1e-6)
    assert np.isnan(seen_before(ledger, 3)[0]).all()
