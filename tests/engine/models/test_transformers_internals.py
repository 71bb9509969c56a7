"""When one of these fails after an upgrade: mend engine/models/transformers_internals.py, or cap transformers in
pyproject.toml at the last version that passes; nothing else in the models package touches the private interface."""

import inspect
import re
from pathlib import Path

import pytest
from transformers import LlamaConfig, MambaConfig
from transformers.integrations import sdpa_attention
from transformers.models.mixtral import modeling_mixtral
from transformers.models.qwen3_moe import modeling_qwen3_moe

import ftui.engine.models
from ftui.engine.models.transformers_internals import knows_gguf_split, let_sdpa_share_keys, supports_flash


def test_model_types_say_whether_they_have_flash_attention() -> None:
    assert (supports_flash(LlamaConfig()), supports_flash(MambaConfig()), supports_flash(object())) == (
        True,
        False,
        False,
    )


def test_sdpa_asks_the_function_that_is_replaced() -> None:
    assert "use_gqa_in_sdpa(" in inspect.getsource(sdpa_attention.sdpa_attention_forward)
    original = sdpa_attention.use_gqa_in_sdpa
    let_sdpa_share_keys(False)
    replaced = sdpa_attention.use_gqa_in_sdpa
    let_sdpa_share_keys(True)
    assert replaced is not original
    assert sdpa_attention.use_gqa_in_sdpa is original
    assert list(inspect.signature(replaced).parameters) == list(inspect.signature(original).parameters)


@pytest.mark.parametrize("module", [modeling_mixtral, modeling_qwen3_moe])
def test_the_balance_loss_takes_a_mask(module: object) -> None:
    parameters = list(inspect.signature(module.load_balancing_loss_func).parameters)  # type: ignore[attr-defined]
    assert parameters == ["gate_logits", "num_experts", "top_k", "attention_mask"]


def test_gguf_splits_have_names() -> None:
    assert knows_gguf_split("llama-bpe")
    assert not knows_gguf_split("no such split")


def test_nothing_else_in_the_package_is_private() -> None:
    private = re.compile(r"_model_mapping|_supports_flash_attn|use_gqa_in_sdpa|load_balancing_loss_func|GGUF_PRE_TOK")
    folder = Path(str(ftui.engine.models.__file__)).parent
    files = [*folder.rglob("*.py"), *folder.parent.joinpath("objectives").glob("*.py")]
    users = [path.name for path in files if private.search(path.read_text())]
    assert users == ["transformers_internals.py"]
