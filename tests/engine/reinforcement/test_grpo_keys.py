"""Each key of `[grpo]` reaches what it is for: the loss, the advantages, the sampling. The formulas have oracles."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.generation.sampling import Sampling
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.log_probs import target_log_probs
from ftui.engine.objectives.loss import Batch
from ftui.engine.objectives.policy_losses import PolicySettings, SampledAnswers, policy_loss
from ftui.engine.reinforcement.advantages import compute_advantages
from ftui.engine.reinforcement.generating import sampling_of
from ftui.engine.reinforcement.rollout_maker import RolloutMaker
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout import Rollout
from ftui.engine.training.collate import collate
from ftui.profile.schema import Profile
from tests.support.tiny import make_profile

LENGTHS = (6, 2, 4, 3)
OF_LOSS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "by answer": {"loss_type": "grpo"},
    "by the longest": {"loss_type": "dr_grpo"},
    "sequence": {"importance_sampling_level": "sequence"},
    "epsilon": {"epsilon": 0.02},
    "epsilon_high": {"epsilon_high": 0.9},
    "delta": {"delta": 1.05},
    "beta": {"beta": 0.3},
    "uncorrected": {"beta": 0.3, "use_bias_correction_kl": False},
}


def grpo(model: Path, **keys: Any) -> Profile:
    return make_profile(
        model, model, run={"stage": "grpo"}, adapter={"method": "lora", "r": 4},
        train={"max_steps": 1, "effective_batch": 8}, rewards={"reward_funcs": ["number_answer"]},
        grpo={"max_completion_length": 12, "num_generations": 2, **keys},
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def batch(model: Any) -> Batch:
    chance, rows = np.random.default_rng(4), []
    for length in LENGTHS:
        ids = chance.integers(5, 200, 5 + length).astype(np.int32)
        rows.append([Sequence(ids, np.arange(len(ids)) >= 5)])
    made = collate(rows, 0)
    with torch.no_grad():
        now = target_log_probs(model, made, temperature=0.8).values
    moved = [now + torch.from_numpy(chance.normal(0, 0.3, len(now)).astype(np.float32)) for _ in range(2)]
    return replace(
        made, old=moved[0], reference=moved[1], advantages=torch.tensor([1.0, -1.0, 0.5, -0.5]),
        sequence_of=torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS)),
    )  # fmt: skip


@pytest.mark.parametrize("case", OF_LOSS)
def test_the_loss_is_that_of_its_keys(case: str, model: Any, model_folder: Path, batch: Batch) -> None:
    keys = OF_LOSS[case]
    profile = grpo(model_folder, temperature=0.8, **keys)
    [(amount, total)] = make_objective(profile).loss(model, batch).sums.items()
    numbers: dict[str, Any] = {"loss_type": "dapo", "importance_sampling_level": "token", **keys}
    given = PolicySettings(**numbers, max_completion_length=12)
    said = target_log_probs(model, batch, temperature=0.8).values
    assert batch.old is not None and batch.advantages is not None and batch.sequence_of is not None
    answers = SampledAnswers(said, batch.old, batch.reference, batch.advantages, batch.sequence_of)
    expected_amount, expected = policy_loss(answers, given)
    assert (amount, float(total.detach())) == (expected_amount, float(expected.detach()))
    if keys:
        plain = policy_loss(answers, PolicySettings("dapo", "token", max_completion_length=12))
        assert (amount, float(total.detach())) != (plain[0], float(plain[1].detach())), "the key makes a difference"


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_advantages_are_those_of_its_keys(scale: Any, estimator: str, model_folder: Path) -> None:
    profile = grpo(model_folder, scale_rewards=scale, adv_estimator=estimator)
    rewards = np.array([1.0, 0.0, 0.25, 0.75])
    rollout = Rollout(
        step=0, seed=0, group_size=2, rows=np.arange(2), prompt_ids=[np.arange(2, dtype=np.int32)] * 2,
        completion_ids=[np.arange(2, dtype=np.int32)] * 4, log_probs=[np.zeros(2, np.float32)] * 4,
        is_complete=np.ones(4, bool), prompts=["p"] * 2, completions=["c"] * 4,
        rewards=RewardTable(["r"], rewards[:, None], np.ones(1)),
    )  # fmt: skip
    maker = cast(RolloutMaker, SimpleNamespace(profile=profile, learning=None))
    found = RolloutMaker._learn(maker, 0, rollout).advantages
    baseline = {"grpo": "mean", "rloo": "leave_one_out"}[estimator]
    assert found is not None
    np.testing.assert_array_equal(
        found, compute_advantages(rewards, 2, scale=scale, baseline=baseline).advantages.reshape(-1)
    )


def test_answers_are_drawn_by_its_keys(model_folder: Path) -> None:
    keys = {"temperature": 0.6, "top_p": 0.9, "top_k": 7, "min_p": 0.05, "repetition_penalty": 1.2}
    found = sampling_of(grpo(model_folder, **keys))
    assert found == Sampling(0.6, 0.9, 7, 0.05, 1.2, seed=5), "the seed is that of the profile"
    assert sampling_of(grpo(model_folder)) == Sampling(1.0, seed=5)
