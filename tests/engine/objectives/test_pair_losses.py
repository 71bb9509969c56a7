"""Losses of pairs against formulas in float64, written with numpy; those of a whole micro-batch are in test_trl.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ftui.engine.objectives.pair_losses import PAIR_LOSSES, LossSettings, Pairs, odds_metrics, pair_metrics

Array = Any  # of float64
SETTINGS = LossSettings(beta=0.3, label_smoothing=0.1, discopop_tau=0.05, simpo_gamma=0.7)
BETA, WRONG, TAU, GAMMA = 0.3, 0.1, 0.05, 0.7


def ln_sigmoid(x: Array) -> Array:
    return -np.logaddexp(0, -x)


def sigmoid(x: Array) -> Array:
    return np.exp(ln_sigmoid(x))


def ln_odds(x: Array) -> Array:
    return x - np.where(x < -0.7, np.log1p(-np.exp(np.minimum(x, -0.7))), np.log(-np.expm1(np.maximum(x, -0.7))))


def conservative(x: Array) -> Array:
    return -(1 - WRONG) * ln_sigmoid(x) - WRONG * ln_sigmoid(-x)


def exo(x: Array) -> Array:
    return sigmoid(x) * (ln_sigmoid(x) - np.log(1 - WRONG)) + sigmoid(-x) * (ln_sigmoid(-x) - np.log(WRONG))


def discopop(x: Array) -> Array:
    return -ln_sigmoid(x) * sigmoid(-x / TAU) + np.exp(ln_sigmoid(x / TAU) - x)


# a, b: log-ratios of the chosen and the rejected answer; m, n: their lengths; c, r: log-probabilities of the model
FORMULAS: dict[str, Callable[..., Array]] = {
    "sigmoid": lambda a, b, m, n, c, r: conservative(BETA * (a - b)),
    "sigmoid_norm": lambda a, b, m, n, c, r: conservative(BETA * (a / m - b / n)),
    "hinge": lambda a, b, m, n, c, r: np.maximum(0, 1 - BETA * (a - b)),
    "ipo": lambda a, b, m, n, c, r: (a / m - b / n - 1 / (2 * BETA)) ** 2,
    "robust": lambda a, b, m, n, c, r: (
        (-(1 - WRONG) * ln_sigmoid(BETA * (a - b)) + WRONG * ln_sigmoid(-BETA * (a - b))) / (1 - 2 * WRONG)
    ),
    "exo_pair": lambda a, b, m, n, c, r: exo(BETA * (a - b)),
    "nca_pair": lambda a, b, m, n, c, r: -ln_sigmoid(BETA * a) - ln_sigmoid(-BETA * a) / 2 - ln_sigmoid(-BETA * b) / 2,
    "bco_pair": lambda a, b, m, n, c, r: -ln_sigmoid(BETA * a) - ln_sigmoid(-BETA * b),
    "sppo_hard": lambda a, b, m, n, c, r: (a - 1 / (2 * BETA)) ** 2 + (b + 1 / (2 * BETA)) ** 2,
    "apo_zero": lambda a, b, m, n, c, r: 1 - sigmoid(BETA * a) + sigmoid(BETA * b),
    "apo_down": lambda a, b, m, n, c, r: sigmoid(BETA * a) + 1 - sigmoid(BETA * (a - b)),
    "discopop": lambda a, b, m, n, c, r: discopop(BETA * (a - b)),
    "simpo": lambda a, b, m, n, c, r: conservative(BETA * (a / m - b / n) - GAMMA),
    "odds_ratio": lambda a, b, m, n, c, r: -BETA * ln_sigmoid(ln_odds(c / m) - ln_odds(r / n)),
}


def make_pairs(spread: float, number: int = 200, dtype: torch.dtype = torch.float32) -> Pairs:
    """Log-probabilities of answers whose distance from the reference is about `spread`."""
    chance = np.random.default_rng(3)
    lengths = chance.integers(1, 40, (2, number)).astype(np.float32)
    policy = -chance.exponential(1.0, (2, number)).astype(np.float32) * lengths * max(1.0, spread / 20)
    reference = policy + chance.normal(0, spread, (2, number)).astype(np.float32)
    values = [*policy, *np.minimum(reference, 0), *lengths]
    return Pairs(*(torch.tensor(value, dtype=dtype) for value in values))


def formula(name: str, pairs: Pairs) -> Array:
    c, r, reference_c, reference_r, m, n = (tensor.detach().double().numpy() for tensor in pairs)
    return FORMULAS[name](c - reference_c, r - reference_r, m, n, c, r)


def slopes(name: str, pairs: Pairs) -> list[Array]:
    """Of the formula, by central differences, on the chosen and the rejected log-probabilities."""
    wide, step = Pairs(*(tensor.double() for tensor in pairs)), 1e-6
    found = []
    for field in ("chosen", "rejected"):
        up, down = (wide._replace(**{field: getattr(wide, field) + sign * step}) for sign in (1, -1))
        found.append((formula(name, up) - formula(name, down)) / (2 * step))
    return found


def losses_and_gradients(name: str, pairs: Pairs) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [tensor.clone().requires_grad_() for tensor in pairs[:2]]
    losses = PAIR_LOSSES[name](pairs._replace(chosen=leaves[0], rejected=leaves[1]), SETTINGS)
    losses.sum().backward()
    grads = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
    return losses.detach(), grads


def test_every_loss_has_a_formula() -> None:
    assert FORMULAS.keys() == PAIR_LOSSES.keys()


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 30.0])
@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients_are_those_of_float64(name: str, spread: float) -> None:
    pairs = make_pairs(spread)
    losses, grads = losses_and_gradients(name, pairs)
    expected = formula(name, pairs)
    assert losses.shape == (200,) and losses.dtype == torch.float32
    np.testing.assert_allclose(losses, expected, rtol=2e-5, atol=2e-6)
    for grad, slope in zip(grads, slopes(name, pairs), strict=True):
        away = np.abs(expected) > 1e-4 if name == "hinge" else np.ones(200, dtype=bool)  # hinge has a corner
        scale = max(1.0, float(np.abs(slope).max()))
        np.testing.assert_allclose(grad.numpy()[away], slope[away], rtol=1e-3, atol=1e-5 * scale)


EXTREMES = [0.0, 1e-6, 1.0, 88.0, 104.0, 1e3, 1e4]


@pytest.mark.parametrize("name", FORMULAS)
def test_nothing_overflows(name: str) -> None:
    """Log-probabilities from certain to hopeless, on either side, with any reference."""
    grid = np.array(np.meshgrid(EXTREMES, EXTREMES, EXTREMES, EXTREMES)).reshape(4, -1).astype(np.float32)
    one = torch.ones(grid.shape[1])
    c, r, reference_c, reference_r = (torch.from_numpy(-row) for row in grid)
    pairs = Pairs(c, r, reference_c, reference_r, one, one)
    losses, grads = losses_and_gradients(name, pairs)
    assert all(bool(grad.isfinite().all()) for grad in grads)
    assert bool(losses.isfinite().all())
    if name != "odds_ratio":  # whose odds are infinite where an answer is certain
        np.testing.assert_allclose(losses, formula(name, pairs), rtol=1e-4, atol=1e-4)


def test_without_smoothing_it_is_dpo() -> None:
    pairs = make_pairs(3.0)
    losses = PAIR_LOSSES["sigmoid"](pairs, LossSettings(beta=BETA))
    c, r, reference_c, reference_r, *_ = (tensor.double().numpy() for tensor in pairs)
    np.testing.assert_allclose(losses, -ln_sigmoid(BETA * (c - reference_c - r + reference_r)), rtol=2e-5)


def test_at_the_start_nothing_has_moved() -> None:
    pairs = make_pairs(0.0)
    assert torch.equal(pairs.chosen, pairs.reference_chosen)
    sums = pair_metrics(pairs, SETTINGS)
    zeros = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
    assert [float(sums[name]) for name in zeros] == [0.0] * 4
    losses = PAIR_LOSSES["sigmoid"](pairs, LossSettings())
    assert bool((losses - np.log(2)).abs().max() < 1e-6)


def test_metrics_are_sums_over_pairs_without_gradient() -> None:
    values: Any = ([-4.0, -9.0, -2.0], [-6.0, -8.0, -3.0], [-5.0, -8.0, -2.0], [-5.0, -9.0, -3.0], [2.0] * 3, [3.0] * 3)
    pairs = Pairs(*(torch.tensor(value, requires_grad=True) for value in values))
    sums = pair_metrics(pairs, LossSettings(beta=0.5))
    assert {name: float(value) for name, value in sums.items()} == {
        "rewards/chosen": 0.0, "rewards/rejected": 0.0, "rewards/margins": 0.0, "rewards/accuracies": 1.0,
        "logps/chosen": -15.0, "logps/rejected": -17.0,
    }  # fmt: skip
    odds = odds_metrics(pairs)
    c, r = np.array(values[0]) / 2, np.array(values[1]) / 3
    difference = ln_odds(c) - ln_odds(r)
    assert float(odds["log_odds_chosen"]) == pytest.approx(difference.sum(), rel=1e-5)
    assert float(odds["log_odds_ratio"]) == pytest.approx(ln_sigmoid(difference).sum(), rel=1e-5)
    assert not any(value.requires_grad for value in (*sums.values(), *odds.values()))
