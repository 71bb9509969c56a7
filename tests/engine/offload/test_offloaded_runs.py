"""Runs with parts in host memory: the losses and weights of runs without, to the last bit, whatever is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.offload.base_layers import HostWeights
from ftui.engine.offload.host_state import _HostState
from ftui.engine.offload.stored_activations import HostCopy
from tests.support.sameness import same_weights
from tests.support.tiny import chats, column, make_profile, make_tokenizer, preference_pairs, train_run, write_rows

STEPS = 3
EVERYTHING = "base state activations"
METHODS: list[tuple[str, dict[str, Any], str]] = [
    ("lora", {"adapter": {"method": "lora", "r": 2, "lora_dropout": 0.1}}, EVERYTHING),
    ("qlora, packed", {"adapter": {"method": "qlora", "r": 2}, "data": {"packing": True}}, EVERYTHING),
    ("pairs", {"run": {"stage": "dpo"}, "adapter": {"method": "lora", "r": 2}}, EVERYTHING),
    ("scores, qlora", {"run": {"stage": "rm"}, "adapter": {"method": "qlora", "r": 2}}, EVERYTHING),
    ("freeze", {"adapter": {"method": "freeze", "trainable_layers": 1}}, EVERYTHING),
    ("full", {"train": {"optim": "adafactor", "precision": "bf16"}}, "state activations"),
    ("full, not computed again", {"train": {"activation_checkpointing": False}}, "state activations"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers: one computes, one comes, one is away."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.15, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sections", "parts"), METHODS, ids=[name for name, _, _ in METHODS])
def test_what_lies_on_the_host_changes_no_bit(
    name: str, sections: dict[str, Any], parts: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_pairs = "run" in sections
    rows = write_rows(tmp_path / "rows.jsonl", (preference_pairs if is_pairs else chats)(24))
    train = {"max_steps": STEPS, "activation_checkpointing": True, "per_device_train_batch_size": 2}
    data = {"eval_num_rows": 4, **sections.get("data", {})}
    common = {**sections, "data": data, "train": {**train, **sections.get("train", {})}}
    plain = train_run(tmp_path / "plain", make_profile(model, rows, **common))
    uses = count_uses(monkeypatch)
    offloaded = {
        **common,
        "train": {**common["train"], "activation_offload": True},
        "hardware": {"offload": [part for part in parts.split() if part != "activations"]},
    }
    moved = train_run(tmp_path / "moved", make_profile(model, rows, **offloaded))
    for quantity in ("loss", "grad_norm"):
        assert column(moved, quantity).tolist() == column(plain, quantity).tolist()
    same_weights(tmp_path / "plain" / "final", tmp_path / "moved" / "final")
    assert {part for part, number in uses.items() if number} == {*parts.split()}


def count_uses(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each kind of part came to the device from now on."""
    uses = dict.fromkeys(("base", "state", "activations"), 0)

    def counted(owner: type, method: str, part: str) -> None:
        original = getattr(owner, method)

        def counting(self: Any, *arguments: Any) -> Any:
            uses[part] += 1
            return original(self, *arguments)

        monkeypatch.setattr(owner, method, counting)

    counted(HostWeights, "wait", "base")
    counted(_HostState, "bring", "state")
    counted(HostCopy, "storage", "activations")
    return uses
