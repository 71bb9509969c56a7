"""PPO's formulas against what trl 1.12's PPOTrainer computed of one rollout and of its third update on it.

The figures were recorded from that trainer as it trained: later versions do not have it. Of an answer that ended,
theirs has a place after the last token, with the score and a value of its own; the formulas are the same.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ftui.engine.objectives.ppo_losses import PpoSettings, SampledTokens, ppo_loss, ppo_metrics
from ftui.engine.reinforcement.token_advantages import (
    compute_token_advantages,
    estimate_divergence,
    generalised_advantages,
    whiten,
)

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "fixtures/ppo/trl-1.12.json").read_bytes())
DEFAULTS = {"kl_coef": 0.05, "gamma": 1.0, "lam": 0.95, "kl_estimator": "k1", "whiten_rewards": False}


@pytest.fixture(params=RECORDED)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(RECORDED[request.param])


def ragged(rows: list[list[float]], mask: list[list[bool]]) -> list[np.ndarray]:
    """What is not masked of each row."""
    return [np.array(row, np.float32)[~np.array(out)] for row, out in zip(rows, mask, strict=True)]


def flat(rows: list[list[float]], mask: list[list[bool]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(ragged(rows, mask)))


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_rewards_returns_and_advantages_are_trls(case: dict[str, Any]) -> None:
    found, keys = case["rollout"], DEFAULTS | case["keys"]
    tokens, places = found["padding_mask"], found["padding_mask_p1"]
    old, reference = ragged(found["logprobs"], tokens), ragged(found["ref_logprobs"], tokens)
    divergence = [estimate_divergence(a, b, keys["kl_estimator"]) for a, b in zip(old, reference, strict=True)]
    near(np.mean([one.sum() for one in divergence]), found["mean_kl"])
    rewards = [
        np.concatenate([-keys["kl_coef"] * one, np.zeros(np.sum(~np.array(row)) - len(one))])
        for one, row in zip(divergence, places, strict=True)
    ]
    for one, score in zip(rewards, found["scores"], strict=True):
        one[-1] += score
    rewards = whiten(rewards, shift_mean=False) if keys["whiten_rewards"] else rewards
    values = ragged(found["values"], places)
    for one, expected in zip(rewards, ragged(found["rewards"], places), strict=True):
        near(one, expected)
    raw = [generalised_advantages(r, v, keys["gamma"], keys["lam"]) for r, v in zip(rewards, values, strict=True)]
    for one, value, expected in zip(raw, values, ragged(found["returns"], places), strict=True):
        near(one + value, expected)
    white = whiten([one[: len(tokens)] for one, tokens in zip(raw, old, strict=True)])
    near(np.concatenate(white), flat(found["advantages"], tokens))


def test_a_rollout_without_ends_is_trls_as_a_whole(case: dict[str, Any]) -> None:
    """Of answers that were all cut off nothing differs: the last seven of the rollout, whitened by themselves."""
    found, keys = case["rollout"], DEFAULTS | case["keys"]
    masks = found["padding_mask"][1:]
    assert not np.array(masks).any()
    old, reference, values = (ragged(found[name][1:], masks) for name in ("logprobs", "ref_logprobs", "values"))
    own = compute_token_advantages(old, reference, values, np.array(found["scores"][1:]), **(ours_of(keys)))
    if not keys["whiten_rewards"]:
        near(np.concatenate(own.returns), np.concatenate(found["returns"][1:]))
    assert np.concatenate(own.advantages).mean() == pytest.approx(0, abs=1e-6)
    assert np.concatenate(own.advantages).std(ddof=1) == pytest.approx(1, abs=1e-6)


def ours_of(keys: dict[str, Any]) -> dict[str, Any]:
    return {name: keys[name] for name in DEFAULTS}


def test_losses_are_trls(case: dict[str, Any]) -> None:
    """Those of the policy are means over tokens, those of the value over its places, of which TRL has one more."""
    found, keys = case["update"], case["keys"]
    settings = PpoSettings(keys.get("cliprange", 0.2), 0.1, keys.get("cliprange_value", 0.2))

    def facts(mask: list[list[bool]]) -> SampledTokens:
        names = ("new_logprobs", "vpred", "mb_logprobs", "mb_values", "mb_return", "mb_advantage")
        return SampledTokens(*(flat(found[name], mask) for name in names))

    def means(mask: list[list[bool]]) -> dict[str, float]:
        own = facts(mask)
        return {name: float(value) / len(own.values) for name, value in ppo_metrics(own, settings).items()}

    tokens, places = means(found["padding_mask"]), means(found["padding_mask_p1"])
    near(tokens["loss/policy_avg"], found["pg_loss"])
    near(places["loss/value_avg"], found["vf_loss"])
    near(tokens["loss/policy_avg"] + 0.1 * places["loss/value_avg"], found["loss"])
    near(tokens["policy/clipfrac_avg"], found["pg_clipfrac"])
    near(places["val/clipfrac_avg"], found["vf_clipfrac"])
    assert 0.2 < found["pg_clipfrac"] < 1 and found["vf_clipfrac"] > 0.2, "the clipping is there to be compared"
    own = facts(found["padding_mask"])
    total = tokens["loss/policy_avg"] + settings.vf_coef * tokens["loss/value_avg"]
    near(float(ppo_loss(own, settings)) / len(own.values), total)
