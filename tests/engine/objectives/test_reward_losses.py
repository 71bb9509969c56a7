"""Scores of reward models against transformers' own, losses of their pairs against float64."""

from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, Gemma2Config, GPT2Config, LlamaConfig, Qwen2Config

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.objectives.reward_losses import centring_loss, reward_loss, reward_metrics, sequence_scores
from ftui.engine.training.collate import collate

LENGTHS = (14, 9, 12)
SMALL: dict[str, Any] = {
    "vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_labels": 1,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "vocab_size": 90, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.2,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0, "num_labels": 1,
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "llama": lambda: LlamaConfig(**SMALL),
    "qwen2": lambda: Qwen2Config(**SMALL),
    "gemma2": lambda: Gemma2Config(**SMALL, head_dim=8, sliding_window=6),
    "gpt2": lambda: GPT2Config(**GPT2),
}  # fmt: skip


def make_model(kind: str) -> Any:
    torch.manual_seed(4)
    return AutoModelForSequenceClassification.from_config(CONFIGS[kind]())


def make_rows(end: int) -> list[Sequence]:
    """Three rows that end in the same token."""
    chance = np.random.default_rng(8)
    ids = [np.append(chance.integers(3, 90, n - 1), end).astype(np.int32) for n in LENGTHS]
    return [Sequence(row, np.ones(len(row), dtype=bool)) for row in ids]


@pytest.mark.parametrize("kind", CONFIGS)
def test_scores_are_those_of_transformers(kind: str) -> None:
    model, batch = make_model(kind), collate([[row] for row in make_rows(7)], 0, scored=True)
    assert batch.lengths is not None
    mask = torch.arange(batch.input_ids.shape[1])[None] < batch.lengths[:, None]
    own = model(input_ids=batch.input_ids, attention_mask=mask.long()).logits.squeeze(-1)
    scores = sequence_scores(model, batch)
    assert scores.shape == (3,) and scores.dtype == torch.float32
    torch.testing.assert_close(scores.detach(), own.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("end", [0, 2], ids=["padding ends a text", "another token does"])
def test_padding_is_told_by_lengths(end: int) -> None:
    """transformers looks for the last token that is no padding: one too early where that token ends a text."""
    model, rows = make_model("llama"), make_rows(end)
    batch = collate([[row] for row in rows], 0, scored=True)
    together = sequence_scores(model, batch).detach()
    for row, score in zip(rows, together, strict=True):
        alone = collate([[row]], 0, scored=True)
        expected = sequence_scores(model, alone).detach()
        torch.testing.assert_close(score[None], expected, rtol=1e-5, atol=1e-5)
        states = model.model(input_ids=alone.input_ids).last_hidden_state[:, -1]
        torch.testing.assert_close(model.score(states)[0].detach(), expected, rtol=1e-5, atol=1e-5)


def test_packed_rows_score_as_their_sequences_do() -> None:
    model, rows = make_model("llama"), make_rows(7)
    apart, packed = collate([[row] for row in rows], 0, scored=True), collate([rows], 0, scored=True)
    expected = sequence_scores(model, apart)
    scores = sequence_scores(model, packed)
    torch.testing.assert_close(scores.detach(), expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_an_adapter_brings_its_own_head(stored: torch.dtype) -> None:
    """The head computes in the type it is stored in, whatever that of the model below it."""
    model, batch = make_model("llama").to(stored), collate([[row] for row in make_rows(7)], 0, scored=True)
    config = LoraConfig(r=4, target_modules=["q_proj"], task_type="SEQ_CLS", modules_to_save=["score"])
    wrapped: Any = get_peft_model(model, config)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = sequence_scores(wrapped, batch)
    assert scores.dtype == torch.float32
    scores.sum().backward()
    trained = [name for name, weight in wrapped.named_parameters() if weight.grad is not None]
    assert any("score" in name for name in trained) and any("lora_B" in name for name in trained)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        states = wrapped.base_model.model.model(batch.input_ids).last_hidden_state.flatten(0, 1)[batch.ends]
    head = wrapped.base_model.model.score.weight
    torch.testing.assert_close(scores.detach(), (states.to(head.dtype) @ head.T).squeeze(-1).float().detach())


@pytest.mark.parametrize("margins", [None, [0.0, 0.5, 2.0, 1.0]])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_losses_are_those_of_float64(margins: list[float] | None, size: float) -> None:
    chosen, rejected = (torch.tensor(row) * size for row in ([1.0, -2.0, 0.5, 3.0], [0.5, 1.0, 0.5, -3.0]))
    chosen.requires_grad_()
    losses = reward_loss(chosen, rejected, None if margins is None else torch.tensor(margins))
    losses.sum().backward()
    difference = (chosen - rejected).detach().double().numpy() - np.array(margins or [0.0] * 4)
    np.testing.assert_allclose(losses.detach(), np.logaddexp(0, -difference), rtol=1e-5, atol=1e-7)
    assert chosen.grad is not None
    np.testing.assert_allclose(chosen.grad, -np.exp(-np.logaddexp(0, difference)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(centring_loss(chosen, rejected).detach(), ((chosen + rejected) ** 2).detach())


def test_metrics_are_sums_and_a_tie_is_no_success() -> None:
    chosen, rejected = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([1.0, 1.0, 5.0])
    sums = reward_metrics(chosen, rejected)
    assert {name: float(value) for name, value in sums.items()} == {
        "rewards/chosen": 6.0, "rewards/rejected": 7.0, "rewards/accuracies": 1.0, "rewards/margins": -1.0,
    }  # fmt: skip
    assert not any(value.requires_grad for value in sums.values())
