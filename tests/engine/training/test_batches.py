"""How rows share micro-batches and lines must not matter: 1x8 = 2x4 = 8x1, and packed = alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen3Config,
)

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.models.joined_rows import check_packing, settle_joined_rows
from ftui.engine.models.load_model import load_model
from ftui.engine.objectives.loss import Batch, RowLayout
from ftui.engine.training.collate import collate
from ftui.engine.training.prepare import prepare
from ftui.errors import ModelError
from ftui.system.user_folders import cache_folder
from tests.support.losses import summed_loss
from tests.support.tiny import chats, column, make_profile, train_run, write_rows

SMALL: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PACKABLE: dict[str, tuple[PretrainedConfig, str]] = {
    "llama-sdpa": (LlamaConfig(**SMALL), "sdpa"),
    "llama-eager": (LlamaConfig(**SMALL), "eager"),
    "mistral-sdpa": (MistralConfig(**SMALL, sliding_window=6), "sdpa"),
    "qwen3-eager": (Qwen3Config(**SMALL, head_dim=8), "eager"),
    "gpt2-sdpa": (
        GPT2Config(
            vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            initializer_range=0.2, bos_token_id=1, eos_token_id=2,
        ),
        "sdpa",
    ),
    "gemma2-eager": (Gemma2Config(**SMALL, head_dim=8, sliding_window=6), "eager"),
}  # fmt: skip
LENGTHS = (9, 4, 6, 3, 11)


def sequences() -> list[Sequence]:
    """Sequences with some targets each, the first token and the last among them."""
    chance = np.random.default_rng(3)
    made = []
    for length in LENGTHS:
        targets = chance.random(length) < 0.7
        targets[[0, -1]] = True
        made.append(Sequence(chance.integers(3, 60, length).astype(np.int32), targets))
    return made


def gradients(model: torch.nn.Module, batches: list[Batch]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    for batch in batches:
        summed_loss(model, batch).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def only(batch: Batch, row: int, start: int, end: int) -> Batch:
    """The batch with the targets of one of its sequences alone."""
    length = batch.input_ids.shape[1]
    targets = batch.predictors + 1
    kept = (targets >= row * length + start) & (targets < row * length + end)
    return Batch(batch.input_ids, batch.position_ids, batch.predictors[kept], batch.target_ids[kept], batch.amounts)


@pytest.mark.slow
def test_the_split_into_micro_batches_does_not_matter(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(44))  # the last step of an epoch has four rows
    losses, norms = {}, {}
    for size, accumulation in ((1, 8), (2, 4), (8, 1)):
        train = {
            "per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation,
            "learning_rate": 5e-3, "num_train_epochs": 2, "weight_decay": 0.1, "precision": "fp32",
        }  # fmt: skip
        steps = train_run(tmp_path / f"{size}", make_profile(model_folder, rows, train=train))
        losses[size], norms[size] = column(steps, "loss"), column(steps, "grad_norm")
    assert len(losses[1]) == 12
    for size in (2, 8):
        np.testing.assert_allclose(losses[size], losses[1], rtol=1e-5)
        np.testing.assert_allclose(norms[size], norms[1], rtol=1e-4)


@pytest.mark.parametrize("kind", PACKABLE)
def test_packed_sequences_give_what_they_give_alone(kind: str) -> None:
    """Three rows: two packed ones of other lengths (so that one is padded) and a single sequence."""
    config, attention = PACKABLE[kind]
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    all_of_them = sequences()
    rows = [[0, 1, 2], [3], [4, 3]]
    packed = collate([[all_of_them[i] for i in row] for row in rows], pad_id=0)
    for number, row in enumerate(rows):
        start = 0
        for index in row:
            alone = collate([[all_of_them[index]]], pad_id=0)
            inside = only(packed, number, start, start + LENGTHS[index])
            assert len(alone.target_ids) == len(inside.target_ids) == all_of_them[index].num_targets
            a, b = float(summed_loss(model, alone).detach()), float(summed_loss(model, inside).detach())
            assert b == pytest.approx(a, rel=1e-5)
            start += LENGTHS[index]
    together = gradients(model, [packed])
    apart = gradients(model, [collate([[all_of_them[i]]], pad_id=0) for row in rows for i in row])
    assert together.keys() == apart.keys()
    for name, grad in together.items():
        torch.testing.assert_close(grad, apart[name], rtol=1e-5, atol=1e-5 * float(apart[name].abs().max()))


def test_without_positions_packed_sequences_would_see_each_other() -> None:
    """The control of the test above: neighbours do matter where nothing keeps them apart."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(PACKABLE["llama-sdpa"][0], attn_implementation="sdpa")
    first, second = sequences()[:2]
    packed = only(collate([[first, second]], pad_id=0), 0, LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    naive = Batch(packed.input_ids, None, packed.predictors, packed.target_ids, packed.amounts)
    alone = collate([[second]], pad_id=0)
    assert abs(float(summed_loss(model, naive).detach() - summed_loss(model, alone).detach())) > 1e-3


@pytest.mark.parametrize("kind", PACKABLE)
def test_packing_is_allowed_where_it_is_right(kind: str) -> None:
    config, attention = PACKABLE[kind]
    check_packing(AutoModelForCausalLM.from_config(config, attn_implementation=attention))


@pytest.mark.parametrize("kind", ["llama-sdpa", "gpt2-sdpa"])
def test_joined_rows_are_not_padded_and_give_the_same(kind: str) -> None:
    """Rows of one and of several sequences: no place without a token, none behind what predicts, the same gradients."""
    settle_joined_rows()
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(PACKABLE[kind][0], attn_implementation="sdpa")
    made = [*sequences(), sequences()[0], Sequence(np.arange(5, 9, dtype=np.int32), np.zeros(4, dtype=bool))]
    made[1].targets[2:] = False  # two tokens in front of nothing
    rows = [[made[0], made[5]], [made[1]], [made[2], made[3]], [made[4]], [made[6]]]
    joined, padded = collate(rows, 0, layout=RowLayout.JOINED), collate(rows, 0)
    assert joined.joined == (8, 8, 1, 5, 2, 10, 1) and joined.input_ids.shape == (1, 35)
    assert joined.num_tokens == padded.num_tokens and torch.equal(joined.target_ids, padded.target_ids)
    losses = [float(summed_loss(model, batch).detach()) for batch in (joined, padded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    expected = gradients(model, [padded])
    for name, grad in gradients(model, [joined]).items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-5, atol=1e-5 * float(expected[name].abs().max()))


def test_packing_is_refused_for_a_model_without_positions() -> None:
    model = AutoModelForCausalLM.from_config(MambaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2))
    with pytest.raises(ModelError, match=r"see each other in this model \(mamba\)"):
        check_packing(model)


def test_a_packed_run_trains_on_the_same_losses(model_folder: Path, tmp_path: Path) -> None:
    """The first line of a packed run's metrics = all sequences of its first step, each alone, over their targets."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(40))
    profile = make_profile(
        model_folder, rows, data={"packing": True}, train={"max_steps": 1, "per_device_train_batch_size": 2}
    )
    (first,) = train_run(tmp_path / "run", profile)
    prepared = prepare(profile, cache_folder(tmp_path), lambda detail: None)
    chosen = [prepared.train.sequences[index] for row in prepared.plan.step(1) for index in row]
    assert len(chosen) > 2, "rows hold more than one sequence each"
    model = load_model(model_folder, profile.model, torch.float32)
    total = sum(float(summed_loss(model, collate([[s]], pad_id=0)).detach()) for s in chosen)
    assert first.num_target_tokens == sum(s.num_targets for s in chosen)
    assert first.num_tokens == sum(len(s.input_ids) for s in chosen)
    assert first.loss == pytest.approx(total / first.num_target_tokens, rel=1e-5)


def test_the_prompt_of_a_padded_row_is_never_trained_on() -> None:
    """Exactly the marked tokens are targets, each predicted from the position before it, and never the first."""
    made = sequences()
    batch = collate([[made[0], made[1]], [made[3]]], pad_id=0)
    length = batch.input_ids.shape[1]
    expected = []
    for row, items in enumerate(((made[0], made[1]), (made[3],))):
        start = 0
        for item in items:
            expected += [
                (row * length + start + i - 1, int(item.input_ids[i]))
                for i in range(1, len(item.input_ids))
                if item.targets[i]
            ]
            start += len(item.input_ids)
    assert list(zip(batch.predictors.tolist(), batch.target_ids.tolist(), strict=True)) == expected
    assert batch.num_tokens == 9 + 4 + 3


def test_activation_checkpointing_changes_nothing(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    for method in ("full", "lora"):
        losses = []
        for checkpointing in (False, True):
            train = {"activation_checkpointing": checkpointing, "max_steps": 4, "learning_rate": 1e-2}
            profile = make_profile(model_folder, rows, adapter={"method": method, "r": 4}, train=train)
            losses.append(column(train_run(tmp_path / f"{method}-{checkpointing}", profile), "loss"))
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
