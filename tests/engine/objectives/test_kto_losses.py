"""Losses of judged answers against formulas in float64."""

from typing import Any

import numpy as np
import pytest
import torch

from ftui.engine.objectives.kto_losses import (
    KTO_LOSSES,
    JudgedAnswers,
    VerdictSettings,
    mean_divergence,
    verdict_metrics,
)

SETTINGS = VerdictSettings(beta=0.3, desirable_weight=1.5, undesirable_weight=0.5)


def make_answers(spread: float, good: float = 0.5) -> JudgedAnswers:
    chance = np.random.default_rng(3)
    log_probs = -chance.exponential(20.0, 60)
    reference = log_probs + chance.normal(0, spread, 60)
    policy, other = (torch.tensor(values, dtype=torch.float32) for values in (log_probs, reference))
    return JudgedAnswers(policy, other, torch.from_numpy(chance.random(60) < good))


def sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))


@pytest.mark.parametrize("z0", [0.0, 2.5])
@pytest.mark.parametrize("good", [0.5, 0.0, 1.0], ids=["both", "only bad", "only good"])
@pytest.mark.parametrize("spread", [0.0, 3.0, 1e4])
@pytest.mark.parametrize("name", KTO_LOSSES)
def test_values_and_gradients_are_those_of_float64(name: str, spread: float, good: float, z0: float) -> None:
    answers = make_answers(spread, good)
    leaf = answers.log_probs.clone().requires_grad_()
    losses = KTO_LOSSES[name](answers._replace(log_probs=leaf), torch.tensor(z0), SETTINGS)
    losses.sum().backward()
    ratios, is_good = (answers.log_probs - answers.reference).double().numpy(), answers.is_good.numpy()
    sign, weight = np.where(is_good, 1.0, -1.0), np.where(is_good, 1.5, 0.5)
    x = sign * 0.3 * (ratios - (z0 if name == "kto" else 0.0))
    np.testing.assert_allclose(losses.detach(), weight * (1 - sigmoid(x)), rtol=1e-4, atol=2e-6)
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad, -sign * weight * 0.3 * sigmoid(x) * sigmoid(-x), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("total", "number", "expected"), [(6.0, 4, 1.5), (-6.0, 4, 0.0), (0.0, 0, 0.0)])
def test_the_divergence_is_a_mean_that_is_never_below_zero(total: float, number: int, expected: float) -> None:
    z0 = mean_divergence(torch.tensor(total, requires_grad=True), number)
    assert float(z0) == expected and not z0.requires_grad


def test_metrics_are_sums_of_each_verdict() -> None:
    answers = JudgedAnswers(
        torch.tensor([-1.0, -4.0, -8.0], requires_grad=True), torch.tensor([-2.0, -2.0, -4.0]),
        torch.tensor([True, False, False]),
    )  # fmt: skip
    sums = verdict_metrics(answers, VerdictSettings(beta=0.5))
    assert {name: float(value) for name, value in sums.items()} == {
        "rewards/chosen": 0.5, "rewards/rejected": -3.0, "logps/chosen": -1.0, "logps/rejected": -12.0
    }  # fmt: skip
    assert not any(value.requires_grad for value in sums.values())
