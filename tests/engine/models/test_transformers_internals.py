"""When one of these fails after an upgrade: mend engine/models/transformers_internals.py, or cap transformers in
pyproject.toml at the last version that passes; nothing else in the models package touches the private interface."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, masking_utils
from transformers.integrations import sdpa_attention
from transformers.models.mixtral import modeling_mixtral
from transformers.models.qwen3_moe import modeling_qwen3_moe

import ftui.engine.models
from ftui.engine.models.transformers_internals import (
    knows_gguf_split,
    let_sdpa_share_keys,
    packing_is,
    redirect_weight_files,
    supports_flash,
)

SMALL = LlamaConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2, pad_token_id=0,
)  # fmt: skip


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


def test_files_of_weights_are_handed_over_and_not_written(tmp_path: Path) -> None:
    model = LlamaForCausalLM(SMALL)
    files: dict[str, dict[str, torch.Tensor]] = {}
    with redirect_weight_files(lambda tensors, path, metadata=None: files.update({Path(path).name: dict(tensors)})):
        model.save_pretrained(tmp_path / "redirected", max_shard_size="20KB")
    model.save_pretrained(tmp_path / "written", max_shard_size="20KB")
    written = {path.name: load_file(path) for path in (tmp_path / "written").glob("*.safetensors")}
    assert len(files) > 1 and not list((tmp_path / "redirected").glob("*.safetensors"))
    assert {name: list(map(torch.Tensor.tolist, tensors.values())) for name, tensors in sorted(files.items())} == {
        name: [tensors[key].tolist() for key in files[name]] for name, tensors in sorted(written.items())
    }


@pytest.mark.parametrize("positions", [[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 1, 0, 1], [0, 1, 2, 3]], [[0, 0, 1, 2]] * 2])
def test_packed_rows_are_known_as_transformers_finds_them(positions: list[list[int]]) -> None:
    """The same answer without a look at the values, and the model's mask asks the function that is replaced."""
    ids, original = torch.tensor(positions), masking_utils.find_packed_sequence_indices
    theirs = original(ids)
    with packing_is(theirs is not None):
        ours = masking_utils.find_packed_sequence_indices(ids)
    assert masking_utils.find_packed_sequence_indices is original
    assert (ours is None) == (theirs is None)
    assert ours is None or theirs is None or torch.equal(ours, theirs)
    assert "find_packed_sequence_indices(position_ids)" in inspect.getsource(masking_utils._preprocess_mask_arguments)


def test_gguf_splits_have_names() -> None:
    assert knows_gguf_split("llama-bpe")
    assert not knows_gguf_split("no such split")


def test_nothing_else_in_the_package_is_private() -> None:
    private = re.compile(
        r"_model_mapping|_supports_flash_attn|use_gqa_in_sdpa|find_packed|load_balancing_loss_func|GGUF_PRE_TOK|safe_save"
    )
    folder = Path(str(ftui.engine.models.__file__)).parent
    files = [*folder.rglob("*.py"), *folder.parent.joinpath("objectives").glob("*.py")]
    users = [path.name for path in files if private.search(path.read_text())]
    assert users == ["transformers_internals.py"]
