"""The answers of a rollout as micro-batches: the same loss however they lie, and a prompt once for its group."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.models.joined_rows import settle_joined_rows
from ftui.engine.models.load_model import load_model
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.planning.plan import Reuse
from ftui.engine.reinforcement.answer_batches import AnswerBatches
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout import Rollout
from tests.support.tiny import make_profile, write_rows

NUMBERS = {"reward_funcs": ["number_answer"]}
PROMPTS, ANSWERS = (23, 31), (3, 9, 5, 7, 8, 4)
"""Tokens of two prompts, and of three answers to each."""


def rollout() -> Rollout:
    draw = np.random.default_rng(3)
    ids = [draw.integers(5, 200, size).astype(np.int32) for size in (*PROMPTS, *ANSWERS)]
    return Rollout(
        step=0, seed=0, group_size=3, rows=np.arange(2), prompt_ids=ids[:2], completion_ids=ids[2:],
        log_probs=[np.zeros(size, np.float32) for size in ANSWERS],
        is_complete=np.array([True, False, True, True, True, True]), prompts=["", ""], completions=[""] * 6,
        rewards=RewardTable(["any"], draw.random((6, 1)), np.ones(1)),
        advantages=draw.standard_normal(6).astype(np.float32),
    )  # fmt: skip


@pytest.mark.parametrize("masks_truncated", [False, True])
def test_a_group_gives_the_same_however_it_lies(masks_truncated: bool, model_folder: Path, tmp_path: Path) -> None:
    settle_joined_rows()
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "any"}])
    grpo = {"num_generations": 3, "num_iterations": 2, "max_completion_length": 16}
    train = {"per_device_train_batch_size": 6}
    profile = make_profile(model_folder, rows, run={"stage": "grpo"}, grpo=grpo, train=train, rewards=NUMBERS)
    old = {"old": [np.full(size, -5.0, np.float32) for size in ANSWERS]}
    if masks_truncated:
        old["old"][1] = np.zeros(0, np.float32)
    results, computed = [], {}
    for layout in RowLayout:
        model = load_model(model_folder, profile.model, torch.float32)
        source = AnswerBatches(Reuse(), 0, ProcessGroup(), layout, masks_truncated=masks_truncated)
        source.load(rollout(), [2], old)
        batches, _ = source.get(1, 4)
        assert len(batches.batches) == 2
        computed[layout] = batches.num_places
        total = torch.zeros(())
        for batch in batches.batches:
            loss = make_objective(profile).loss(model, batch)
            total = total + sum(loss.sums.values())
        total.backward()
        weights = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
        results.append(weights | {"loss": total.detach()})
    expected, *others = results
    for found in others:
        assert found.keys() == expected.keys() and len(found) > 20
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5 * float(value.abs().max()))
    if not masks_truncated:  # the last token of each answer is not read; a group that is cut has its prompt twice
        read = sum(ANSWERS) - len(ANSWERS)
        assert computed[RowLayout.JOINED] == 3 * sum(PROMPTS) + read
        assert computed[RowLayout.SHARED] == sum(PROMPTS) + min(PROMPTS) + read
