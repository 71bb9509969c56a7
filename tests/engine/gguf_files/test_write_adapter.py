"""A LoRA adapter as GGUF answers, on the GGUF file of its base, as PEFT does; all else is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from ftui.engine.gguf_files.write_adapter import adapter_pieces, plan_adapter
from ftui.errors import ModelError
from tests.engine.gguf_files.conftest import MakeModel, needs_llama
from tests.engine.gguf_files.test_write_model import difference, written

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]


def adapted(model: Any, folder: Path, **keys: Any) -> Any:
    """An adapter with weights drawn by chance, saved in `folder`."""
    settings: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": LINEAR, "lora_dropout": 0.0} | keys
    tuned = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn_like(weight) * 0.15)
    tuned.save_pretrained(str(folder), save_embedding_layers=False)
    return tuned


GPT2 = {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}


@needs_llama
@pytest.mark.parametrize(("kind", "keys"), [
    pytest.param("llama", {}, marks=pytest.mark.slow),
    pytest.param("qwen3", {"use_rslora": True}, marks=pytest.mark.slow),
    pytest.param("llama", {"rank_pattern": {"q_proj": 8}, "alpha_pattern": {"k_proj": 3}}, marks=pytest.mark.slow),
    pytest.param("gpt2", GPT2, marks=pytest.mark.slow),
])  # fmt: skip
def test_an_adapter_answers_as_in_peft(kind: str, keys: dict[str, Any], make_model: MakeModel, tmp_path: Path) -> None:
    folder, model = make_model(kind)
    base = written(folder)
    tuned = adapted(model, tmp_path / "adapter", **keys)
    plan = plan_adapter(tmp_path / "adapter", folder, "f16")
    file = tmp_path / "adapter.gguf"
    file.write_bytes(b"".join(adapter_pieces(plan)))
    assert file.stat().st_size <= plan.num_bytes
    assert difference(base, tuned, file) <= 0.05
    assert difference(base, tuned) > 0.3, "without the adapter"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "whole modules"),
        ({"trainable_token_indices": [5]}, "single tokens"),
        ({"bias": "all"}, "biases"),
        ({"target_modules": ["embed_tokens"]}, "lora_embedding_A"),
    ],
)
def test_what_llama_cannot_load_is_merged_first(
    keys: dict[str, Any], words: str, make_model: MakeModel, tmp_path: Path
) -> None:
    folder, model = make_model("llama")
    adapted(model, tmp_path / "adapter", **keys)
    with pytest.raises(ModelError, match=words) as raised:
        plan_adapter(tmp_path / "adapter", folder, "f16")
    assert "Merge first" in raised.value.hint
