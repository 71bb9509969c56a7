"""Rows end to end: where that is allowed, that each type of model keeps them apart, and what a run makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.models import joined_rows
from ftui.engine.models.joined_rows import JOINABLE, can_join, joins_rows, keeps_apart, settle_joined_rows
from ftui.engine.system.device import Hardware
from ftui.engine.training.collate import collate
from tests.support.losses import summed_loss
from tests.support.tiny import chats, column, make_profile, train_run, write_rows

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a CPU", None)
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "initializer_range": 0.1,
}  # fmt: skip
GPT2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


@pytest.fixture(autouse=True)
def _settled() -> None:
    settle_joined_rows()


def make_model(kind: str, **keys: Any) -> Any:
    torch.manual_seed(1)
    config = AutoConfig.for_model(kind, **SIZES | (GPT2 if kind == "gpt2" else {}) | keys)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def rows_of(lengths: tuple[int, ...]) -> list[list[Sequence]]:
    chance = np.random.default_rng(3)
    return [[Sequence(chance.integers(3, 64, size).astype(np.int32), chance.random(size) < 0.7)] for size in lengths]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(JOINABLE))
def test_every_type_that_is_joined_gives_what_it_gives_padded(kind: str) -> None:
    model = make_model(kind)
    results = []
    for joined in (False, True):
        loss = summed_loss(model, collate(rows_of((17, 9, 9, 4, 1)), 0, joined=joined))
        model.zero_grad()
        loss.backward()
        grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        results.append((float(loss.detach()), grads))
    (padded, expected), (end_to_end, grads) = results
    assert keeps_apart(model, joined=True) and end_to_end == pytest.approx(padded, rel=1e-6)
    assert grads.keys() == expected.keys() != set()
    for name, grad in grads.items():
        assert (grad - expected[name]).abs().max() <= 1e-5 * expected[name].abs().max(), name


@pytest.mark.parametrize("kind", ["granitemoehybrid", "minimax"])
def test_a_type_that_mixes_tokens_elsewhere_is_found_out(kind: str) -> None:
    """Were it in the list by mistake: its other layers carry a sequence into the next."""
    assert not keeps_apart(make_model(kind), joined=True)


@pytest.mark.parametrize("lengths", [(6,), (5, 5, 5), (7, 3, 3, 1), (2, 9)])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_each_sequence_attends_to_itself_alone(lengths: tuple[int, ...], shared: int) -> None:
    torch.manual_seed(0)
    tokens, module = sum(lengths), torch.nn.Module()
    module.num_key_value_groups = 4 // shared  # type: ignore[assignment]
    query, key, value = (torch.randn(1, heads, tokens, 8) for heads in (4, shared, shared))
    result, _ = joined_rows._attend(module, query, key, value, torch.tensor(lengths).view(1, 1, 1, -1), scaling=0.3)
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    allowed = (number[:, None] == number) & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(query, key, value, allowed, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(result, expected.transpose(1, 2))


LLAMA = LlamaConfig(**SIZES)
OTHERWISE: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "not wanted": ({"data": {"padding_free": False}}, LLAMA, "sdpa", "cpu"),
    "compiled": ({"train": {"torch_compile": True}}, LLAMA, "sdpa", "cpu"),
    "noise by length": ({"train": {"neftune_noise_alpha": 5}}, LLAMA, "sdpa", "cpu"),
    "eager": ({}, LLAMA, "eager", "cpu"),
    "sdpa on a GPU": ({}, LLAMA, "sdpa", "cuda"),
    "a window shorter than rows": ({}, AutoConfig.for_model("mistral", **SIZES, sliding_window=32), "sdpa", "cpu"),
    "balanced experts": ({}, AutoConfig.for_model("mixtral", **SIZES, output_router_logits=True), "sdpa", "cpu"),
    "positions from the mask": ({}, AutoConfig.for_model("opt"), "sdpa", "cpu"),
}
JOINED: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "sdpa on a CPU": ({}, LLAMA, "sdpa", "cpu"),
    "flash on a GPU": ({}, LLAMA, "flash_attention_2", "cuda"),
    "a window as long as rows": ({}, AutoConfig.for_model("mistral", **SIZES, sliding_window=64), "sdpa", "cpu"),
}


@pytest.mark.parametrize("name", [*OTHERWISE, *JOINED])
def test_rows_are_joined_where_nothing_else_changes(name: str, tmp_path: Path) -> None:
    sections, config, kernel, device = (OTHERWISE | JOINED)[name]
    data = {"max_length": 64} | sections.get("data", {})
    profile = make_profile(tmp_path, tmp_path / "rows.jsonl", data=data, train=sections.get("train", {}))
    assert can_join(profile, config, kernel, device) == (name in JOINED)


def test_a_model_that_does_not_keep_them_apart_is_padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_profile(tmp_path, tmp_path / "rows.jsonl", data={"max_length": 64})
    model = make_model("llama")
    assert joins_rows(model, profile, CPU)
    monkeypatch.setattr(joined_rows, "JOINABLE", {"minimax"})
    assert not joins_rows(make_model("minimax"), profile, CPU)


@pytest.mark.slow
def test_fifty_steps_have_the_losses_of_padded_rows(model_folder: Path, tmp_path: Path) -> None:
    rows, columns = write_rows(tmp_path / "rows.jsonl", chats(60)), []
    for free in (False, True):
        train = {"max_steps": 50, "learning_rate": 5e-3, "precision": "fp32", "per_device_train_batch_size": 4}
        profile = make_profile(model_folder, rows, data={"padding_free": free, "eval_num_rows": 8}, train=train)
        steps = train_run(tmp_path / f"{free}", profile)
        columns.append([column(steps, name) for name in ("loss", "num_tokens", "num_target_tokens")])
    np.testing.assert_allclose(columns[1][0], columns[0][0], rtol=1e-5)
    np.testing.assert_array_equal(columns[1][1:], columns[0][1:])
