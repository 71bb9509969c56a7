"""Advantages against TRL's formulas (1.16, written with its own helpers), and what holds for any rewards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.engine.reinforcement.advantages import compute_advantages

REWARDS = np.array([1.0, 0.0, 0.5, 0.0, 2.0, 2.0, 2.0, 2.0, np.nan, 3.0, 1.0, 0.0, np.nan, np.nan, np.nan, 4.0])


def trl_advantages(rewards: torch.Tensor, size: int, scale: str) -> torch.Tensor:
    from trl.trainer.utils import nanstd

    groups = rewards.view(-1, size)
    mean = torch.nanmean(groups, dim=1).repeat_interleave(size)
    std = nanstd(rewards).expand_as(rewards) if scale == "batch" else nanstd(groups, dim=1).repeat_interleave(size)
    advantages = rewards - mean
    return torch.nan_to_num(advantages if scale == "none" else advantages / (std + 1e-4), nan=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls(scale: str) -> None:
    there = REWARDS[:12]
    found = compute_advantages(there, 4, scale=scale).advantages
    expected = trl_advantages(torch.from_numpy(there), 4, scale)
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-5, atol=1e-6)


def test_the_baseline_of_rloo_is_the_mean_of_the_others() -> None:
    found = compute_advantages(REWARDS, 4, scale="none", baseline="leave_one_out").advantages
    expected = [
        [1 - 0.5 / 3, -1.5 / 3, 0.5 - 1 / 3, -1.5 / 3], [0.0] * 4, [0.0, 3 - 0.5, 1 - 1.5, -2.0], [0.0, 0.0, 0.0, 0.0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_groups_without_spread_are_counted() -> None:
    groups = compute_advantages(REWARDS, 4, scale="group")
    assert groups.share_without_spread == 0.5  # one has equal rewards, one but a single reward
    assert (groups.advantages[[1, 3]] == 0).all()


values = st.floats(-100, 100, width=32) | st.just(float("nan"))


@settings(max_examples=60, deadline=None)
@given(st.lists(values, min_size=12, max_size=12), st.sampled_from(["group", "batch", "none"]), st.booleans())
def test_any_rewards_give_finite_advantages_that_sum_to_nothing(rewards: list[float], scale: str, rloo: bool) -> None:
    groups = compute_advantages(np.array(rewards), 4, scale=scale, baseline="leave_one_out" if rloo else "mean")
    assert np.isfinite(groups.advantages).all()
    assert (groups.advantages[np.isnan(groups.rewards)] == 0).all()
    size = np.abs(groups.advantages).max(initial=1.0)
    np.testing.assert_allclose(groups.advantages.sum(1), 0, atol=1e-4 * size)
