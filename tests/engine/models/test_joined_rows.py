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
from ftui.engine.models.joined_rows import can_join, choose_layout, keeps_apart, settle_joined_rows
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.system.device import Hardware
from ftui.engine.training.collate import collate
from ftui.models.joinable import JOINABLE
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


def pairs_of(*lengths: tuple[int, int, int]) -> list[list[Sequence]]:
    """Pairs of a prompt and two answers of these lengths."""
    chance, rows = np.random.default_rng(3), []
    for prompt, *answers in lengths:
        start = chance.integers(3, 64, prompt)
        for answer in answers:
            ids = np.concatenate([start, chance.integers(3, 64, answer)]).astype(np.int32)
            rows.append([Sequence(ids, np.arange(len(ids)) >= prompt)])
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(JOINABLE))
def test_every_type_that_is_joined_gives_what_it_gives_padded(kind: str) -> None:
    model = make_model(kind)
    alone, pairs = rows_of((17, 9, 9, 4, 1)), pairs_of((9, 5, 3), (4, 1, 12), (20, 2, 2))
    for rows, per_example, layout in ((alone, 1, RowLayout.JOINED), (pairs, 2, RowLayout.SHARED)):
        results = []
        for chosen in (RowLayout.PADDED, layout):
            model.zero_grad()
            loss = summed_loss(model, collate(rows, 0, per_example, layout=chosen))
            loss.backward()
            grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
            results.append((float(loss.detach()), grads))
        (padded, expected), (end_to_end, grads) = results
        assert keeps_apart(model, layout=layout) and end_to_end == pytest.approx(padded, rel=1e-6)
        assert grads.keys() == expected.keys() != set()
        for name, grad in grads.items():
            assert (grad - expected[name]).abs().max() <= 1e-5 * expected[name].abs().max(), name


@pytest.mark.parametrize("kind", [pytest.param("granitemoehybrid", marks=pytest.mark.slow), "minimax"])
def test_a_type_that_mixes_tokens_elsewhere_is_found_out(kind: str) -> None:
    """Were it in the list by mistake: its other layers carry a sequence into the next."""
    model = make_model(kind)
    assert not keeps_apart(model, layout=RowLayout.JOINED) and not keeps_apart(model, layout=RowLayout.SHARED)


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


@pytest.mark.parametrize("pieces", [(4, -3), (4, -3, -3, -3), (2, 5, -1, -4, 3, 3, -2, -2, 6), (1, -1), (7, -9, -2)])
@pytest.mark.parametrize("shared", [1, 2])
def test_each_answer_attends_to_its_prompt_and_itself(pieces: tuple[int, ...], shared: int) -> None:
    """Against one kernel call with a mask that says so; gradients too."""
    torch.manual_seed(0)
    sizes, module = torch.tensor(pieces).abs(), torch.nn.Module()
    module.num_key_value_groups = 4 // shared  # type: ignore[assignment]
    tokens = int(sizes.sum())
    number = torch.repeat_interleave(torch.arange(len(pieces)), sizes)
    prompt_of = torch.tensor([max(p for p in range(n + 1) if pieces[p] > 0) for n in range(len(pieces))])
    seen = (number[:, None] == number) | (prompt_of[number][:, None] == number)
    allowed = seen & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    inputs = [torch.randn(1, heads, tokens, 8, requires_grad=True) for heads in (4, shared, shared)]
    weights, mask = torch.randn(1, tokens, 4, 8), torch.tensor(pieces).view(1, 1, 1, -1)
    query, key, value = inputs
    result = joined_rows._attend(module, query, key, value, mask, scaling=0.3)[0]
    expected = F.scaled_dot_product_attention(query, key, value, allowed, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(result, expected)
    grads = (torch.autograd.grad((output * weights).sum(), inputs) for output in (result, expected))
    torch.testing.assert_close(*grads)


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
    pairs = make_profile(tmp_path, tmp_path / "rows.jsonl", data={"max_length": 64}, run={"stage": "dpo"})
    model = make_model("llama")
    assert choose_layout(model, profile, CPU) is RowLayout.JOINED
    assert choose_layout(model, pairs, CPU) is RowLayout.SHARED
    monkeypatch.setattr(joined_rows, "JOINABLE", {"minimax"})
    for refused in (profile, pairs):
        assert choose_layout(make_model("minimax"), refused, CPU) is RowLayout.PADDED


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
