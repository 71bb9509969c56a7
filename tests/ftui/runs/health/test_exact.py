"""The exact rules: each fault is found, and what looks like one is not."""

import math

import pytest

from ftui.runs.health.exact_rules import dead_adapter, non_finite, worse_than_guessing, zero_loss
from tests.support.events import make_step

NAN, INF = math.nan, math.inf


def test_a_loss_of_zero_is_one_exactly_of_zero() -> None:
    found = zero_loss(make_step(3, loss=0.0, num_target_tokens=0))
    assert found is not None and "step 3 is exactly 0 over 0 target tokens" in found.evidence
    assert zero_loss(make_step(3, loss=1e-30)) is None
    assert zero_loss(make_step(3, loss=None)) is None


@pytest.mark.parametrize(
    ("losses", "targets", "knew_more", "is_found"),
    [
        ([7.0], 300, True, True),
        ([6.9], 300, True, False),  # ln 1000 = 6.908
        ([7.0], 300, False, False),  # new weights guess, and not quite evenly
        ([7.7], 300, False, True),
        ([7.0], 199, True, False),  # so few tokens may be rare ones
        ([7.0, 7.0], 100, True, True),
        ([6.0, 7.0], 150, True, False),
        ([NAN, 7.0], 100, True, False),
    ],
)
def test_worse_than_guessing_is_above_ln_vocabulary(
    losses: list[float], targets: int, knew_more: bool, is_found: bool
) -> None:
    steps = [make_step(n, loss=loss, num_target_tokens=targets) for n, loss in enumerate(losses, start=1)]
    found = worse_than_guessing(steps, 1000, knew_more=knew_more)
    assert (found is not None) == is_found
    if found is not None:
        assert "guessing among 1000 tokens" in found.evidence


@pytest.mark.parametrize(
    ("loss", "length", "words"),
    [(NAN, 1.0, "the loss of step 5 is"), (1.0, INF, "the gradient of step 5 is"),
     (-INF, NAN, "the loss and the gradient of step 5 are"), (1.0, 1.0, None), (None, None, None)],
)  # fmt: skip
def test_what_is_not_finite_is_named(loss: float | None, length: float | None, words: str | None) -> None:
    found = non_finite(make_step(5, loss=loss, grad_norm=length), parameters=["a.weight"])
    assert (found is None) == (words is None)
    if found is not None and words is not None:
        assert found.evidence.startswith(words) and "that of a.weight first" in found.evidence


def test_weights_that_are_not_finite_say_more_than_a_loss() -> None:
    found = non_finite(make_step(5, loss=1.0), weights=["a", "b", "c"])
    assert found is not None
    assert found.evidence == "3 trained weights are NaN or infinite (a, b and 1 more) in step 5"


def test_a_dead_adapter_names_its_targets() -> None:
    found = dead_adapter(["x.q_proj"], [], of=24, after=5)
    assert found.evidence == "after 5 steps matrix B of 1 of 24 targets is still 0 (x.q_proj)"
    assert "2 trained weights (a, b)" in dead_adapter([], ["a", "b"], of=24, after=5).evidence
