"""Which attention a card gets: grouped heads are shared inside the kernel only where one of them can."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from ftui.engine.models import attention
from ftui.engine.models.attention import attention_here, settle_groups
from ftui.engine.system.device import Hardware
from ftui.profile.sections.model import ModelSection

CPU = Hardware(torch.device("cpu"), "fp32", 1, "a CPU", None)


def card(capability: int, precision: str) -> Hardware:
    return Hardware(torch.device("cuda"), precision, 1, "a card", None, capability)


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Heads of the keys that reach torch, one number a call."""
    seen: list[int] = []
    whole = F.scaled_dot_product_attention

    def looked_at(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        seen.append(key.shape[1])
        return whole(query, key, value, *rest, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", looked_at)
    yield seen
    settle_groups(CPU)


@pytest.mark.parametrize(
    ("hardware", "number"),
    [
        (CPU, 2), (card(80, "bf16"), 2), (card(90, "fp16"), 2), (card(75, "fp16"), 4), (card(75, "fp32"), 4),
        (card(80, "fp32"), 4), (card(70, "fp16"), 4),
    ],
)  # fmt: skip
def test_keys_are_repeated_where_no_kernel_can_share_them(heads: list[int], hardware: Hardware, number: int) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    model, ids = LlamaForCausalLM(config), torch.arange(12)[None]
    settle_groups(CPU)
    before = model(ids).logits
    heads.clear()
    settle_groups(hardware)
    after = model(ids).logits
    assert heads == [number]
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    ("requested", "hardware", "is_installed", "expected"),
    [
        ("flash_attention_2", CPU, True, "auto"), ("flash_attention_2", card(75, "fp16"), True, "auto"),
        ("flash_attention_2", card(80, "fp32"), True, "auto"), ("flash_attention_2", card(80, "bf16"), False, "auto"),
        ("flash_attention_2", card(80, "bf16"), True, "flash_attention_2"), ("eager", CPU, True, "eager"),
    ],
)  # fmt: skip
def test_what_was_trained_with_flash_attention_answers_without_it_elsewhere(
    requested: Any, hardware: Hardware, is_installed: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: is_installed)
    section = ModelSection(name_or_path="x", attn_implementation=requested)
    assert attention_here(section, hardware).attn_implementation == expected
