"""What stage ppo makes of a scored rollout: each key of `[ppo]` does what it says, and only that."""

from typing import Any, cast

import numpy as np
import pytest

from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.planning.plan import Reuse
from ftui.engine.reinforcement.answer_batches import AnswerBatches
from ftui.engine.reinforcement.old_log_probs import OldLogProbs
from ftui.engine.reinforcement.ppo_rollouts import TokenLearning
from ftui.engine.reinforcement.token_advantages import compute_token_advantages, estimate_divergence
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.system.train_state import TrainState
from ftui.profile.sections.sampled_stages import PpoSection

LENGTHS = (4, 2, 3, 1)
REWARDS = np.array([1.0, -0.5, np.nan, 0.7])
JUDGED, ENDED = [0, 1, 3], np.array([True, False, True, False])
EARLIER = [2.0, 0.5, 0.5]
"""Two scores of before, 0 and 1: their number, mean and sum of squares."""
chance = np.random.default_rng(1)
MEASURED: dict[str, list[np.ndarray]] = {
    name: [chance.normal(-1, 0.5, length).astype(np.float32) for length in LENGTHS]
    for name in ("old", "reference", "values")
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "coefficient": {"kl_coef": 0.4},
    "estimator": {"kl_estimator": "k3"},
    "gamma": {"gamma": 0.7},
    "lambda": {"lam": 0.3},
    "whitened": {"whiten_rewards": True},
    "penalty": {"missing_eos_penalty": 0.6},
    "normalised": {"use_score_norm": True, "missing_eos_penalty": 0.6},
}


class Measured:
    """In the place of the model."""

    def measure(self, number: int, batches: AnswerBatches, num_answers: int) -> dict[str, list[np.ndarray]]:
        return MEASURED


def scored() -> Rollout:
    return Rollout(
        step=3, seed=0, group_size=1, rows=np.arange(4), prompt_ids=[np.arange(2, dtype=np.int32)] * 4,
        completion_ids=[np.arange(length, dtype=np.int32) for length in LENGTHS],
        log_probs=[np.zeros(length, np.float32) for length in LENGTHS], is_complete=ENDED,
        prompts=["p"] * 4, completions=["c"] * 4, rewards=RewardTable(["r"], REWARDS[:, None], np.ones(1)),
    )  # fmt: skip


def complete(state: TrainState, **keys: Any) -> Rollout:
    measured, batches = cast(OldLogProbs, Measured()), cast(AnswerBatches, None)
    return TokenLearning(PpoSection(**keys), state, measured, batches).complete(0, scored())


def expected_scores(keys: dict[str, Any]) -> np.ndarray:
    scores = REWARDS[JUDGED]
    if keys.get("use_score_norm"):
        every = np.array([0.0, 1.0, *scores])
        scores = (scores - every.mean()) / every.std(ddof=1)
    return np.asarray(scores - keys.get("missing_eos_penalty", 0.0) * np.array([0.0, 1.0, 1.0]))


@pytest.mark.parametrize("case", CASES)
def test_each_key_is_in_what_is_learned(case: str) -> None:
    keys = CASES[case]
    found = complete(TrainState(scores=list(EARLIER)), **keys)
    numbers: dict[str, Any] = {
        "kl_coef": 0.05,
        "gamma": 1.0,
        "lam": 0.95,
        "kl_estimator": "k1",
        "whiten_rewards": False,
    }
    numbers |= {name: value for name, value in keys.items() if name in numbers}
    old, reference, values = ([MEASURED[name][n] for n in JUDGED] for name in ("old", "reference", "values"))
    scores = expected_scores(keys)
    learned = compute_token_advantages(old, reference, values, scores, **numbers)
    for place, number in enumerate(JUDGED):
        np.testing.assert_allclose(found.tokens["advantages"][number], learned.advantages[place], rtol=1e-5)
        np.testing.assert_allclose(found.tokens["returns"][number], learned.returns[place], rtol=1e-5)
        assert found.tokens["old"][number] is MEASURED["old"][number]
    assert not found.tokens["advantages"][2].any() and not found.tokens["values"][2].any(), "nobody judged it"
    kls = [estimate_divergence(a, b, numbers["kl_estimator"]).sum() for a, b in zip(old, reference, strict=True)]
    figures, price = found.figures, -numbers["kl_coef"] * np.mean(kls)
    assert figures["objective/kl"] == pytest.approx(np.mean(kls))
    assert figures["objective/scores"] == pytest.approx(scores.mean(), rel=1e-6)
    assert figures["objective/non_score_reward"] == pytest.approx(price)
    assert figures["objective/rlhf_reward"] == pytest.approx(price + scores.mean(), rel=1e-6)
    assert figures["objective/entropy"] == pytest.approx(np.mean([-one.sum() for one in old]), rel=1e-6)


def test_the_coefficient_goes_on_from_where_it_is_and_only_where_it_is_steered() -> None:
    assert complete(TrainState()).kl_coef is None
    found = complete(TrainState(kl_coef=0.3), kl_coef=0.05, target=1e-6, horizon=30)
    assert found.figures["objective/kl_coef"] == 0.3
    assert found.kl_coef == pytest.approx(0.3 * (1 + np.sign(found.figures["objective/kl"] or 0) * 0.2 * 3 / 30))
    none = {"objective/kl": None, "objective/kl_coef": 0.0}
    assert complete(TrainState(), kl_coef=0.0).figures.items() >= none.items()


def test_each_pass_deals_the_answers_anew() -> None:
    """Three passes over two steps: the first in order, the others in orders of their own, of a rollout of its own; each
    has every answer once, and always the same."""
    rollout = scored()

    def passes(number: int) -> list[list[int]]:
        batches = AnswerBatches(Reuse(2, 3), 0, ProcessGroup(), RowLayout.PADDED, masks_truncated=False, by_token=True)
        batches.load(rollout, [2, 2], {})
        steps = [list(batches.answers_of(6 * number + step)) for step in range(1, 7)]
        return [steps[first] + steps[first + 1] for first in (0, 2, 4)]

    found = [passes(number) for number in range(20)]
    assert found == [passes(number) for number in range(20)]
    assert all(sorted(order) == [0, 1, 2, 3] for of_rollout in found for order in of_rollout)
    assert all(of_rollout[0] == [0, 1, 2, 3] for of_rollout in found)
    assert len({(*second, *third) for _, second, third in found}) > 15
    assert sum(second != third for _, second, third in found) > 15
