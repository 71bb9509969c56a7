"""A `.gguf` file gives the model it was made from: its logits, its tokens, its hash; what would be lost is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, TokenType, get_tensor_name_map, quantize
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

from ftui.engine.models.files.fingerprints import weights_fingerprint
from ftui.engine.models.files.gguf import unpacked
from ftui.engine.models.load_model import load_model
from ftui.engine.models.tokenizer import load_tokenizer
from ftui.engine.training.prepare import prepare
from ftui.errors import ModelError
from ftui.profile.sections.model import ModelSection
from tests.support.tiny import chats, column, make_profile, make_tokenizer, train_run, write_rows

TEXT = "the kernel reads 1234 pages\nand forks  twice, quietly"
SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.1,
}  # fmt: skip
KINDS: dict[str, tuple[type, MODEL_ARCH, dict[str, Any]]] = {
    "llama": (LlamaConfig, MODEL_ARCH.LLAMA, {}),
    "qwen2": (Qwen2Config, MODEL_ARCH.QWEN2, {}),
    "qwen3": (Qwen3Config, MODEL_ARCH.QWEN3, {"head_dim": 16}),
}


def write_gguf(
    path: Path, kind: str = "llama", *, how: str = "F32", pre: str = "gpt-2", without: str = "", **more: Any
) -> tuple[Any, PreTrainedTokenizerFast]:
    """A tiny model as llama.cpp's converter writes it; returns the model and tokenizer it was made from.

    `how` names the type of its matrices, `without` a tensor that is left out. `more` are keys of the config.
    """
    make, arch, own = KINDS[kind]
    tokenizer = make_tokenizer()
    torch.manual_seed(2)
    keys = SMALL | own | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id} | more
    model = AutoModelForCausalLM.from_config(make(**keys))
    writer = GGUFWriter(path, kind)
    _write_head(writer, model.config)
    _write_tokenizer(writer, tokenizer, pre)
    names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None or theirs == without or (name == "lm_head.weight" and model.config.tie_word_embeddings):
            continue
        weight = _permuted(tensor, name, model.config) if kind == "llama" else tensor
        stored = GGMLQuantizationType[how if tensor.ndim > 1 else "F32"]
        writer.add_tensor(theirs, quantize(weight.numpy(), stored), raw_dtype=stored)
    if "rope_parameters" in more:
        rotary = model.model.rotary_emb
        plain = 10000.0 ** (-np.arange(8) / 8)
        writer.add_tensor("rope_freqs.weight", (plain / rotary.inv_freq.numpy()).astype(np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return model, tokenizer


def _write_head(writer: GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerFast, pre: str) -> None:
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    special = {entry["content"] for entry in definition["added_tokens"]}
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in definition["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_eot_token_id(1)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _permuted(tensor: torch.Tensor, name: str, config: Any) -> torch.Tensor:
    """llama.cpp pairs the two halves of a rotated head by neighbours."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, number in heads.items():
        if f"{part}.weight" in name:
            shape = tensor.shape
            return tensor.reshape(number, 2, -1, shape[1]).transpose(1, 2).reshape(shape)
    return tensor


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(torch.tensor([ids])).logits
    return found


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_unpacked_model_is_the_one_it_was_made_from(kind: str, tied: bool, tmp_path: Path) -> None:
    model, tokenizer = write_gguf(tmp_path / "m.gguf", kind, tie_word_embeddings=tied)
    folder = unpacked(tmp_path / "m.gguf", tmp_path / "cache", lambda detail: None)
    loaded = load_model(folder, ModelSection(name_or_path=str(folder)), torch.float32)
    found = load_tokenizer(folder)
    ids = tokenizer(TEXT).input_ids
    assert found(TEXT).input_ids == ids
    assert len(found) == len(tokenizer)
    assert (found.eos_token, found.chat_template) == (tokenizer.eos_token, tokenizer.chat_template)
    assert torch.equal(logits(loaded, ids), logits(model, ids))
    assert loaded.config.tie_word_embeddings is tied
    assert loaded.generation_config is not None
    assert loaded.generation_config.eos_token_id == [tokenizer.eos_token_id, 1], "end of text and end of turn"


@pytest.mark.parametrize(
    ("how", "stored", "limit"),
    [("F16", "float16", 2e-3), ("BF16", "bfloat16", 2e-2), ("Q8_0", "float16", 4e-2), ("Q4_0", "float16", 0.5)],
)
def test_every_storage_is_unpacked(how: str, stored: str, limit: float, tmp_path: Path) -> None:
    model, tokenizer = write_gguf(tmp_path / "m.gguf", "qwen2", how=how)
    folder = unpacked(tmp_path / "m.gguf", tmp_path / "cache", lambda detail: None)
    assert json.loads((folder / "config.json").read_bytes())["dtype"] == stored
    loaded = load_model(folder, ModelSection(name_or_path=str(folder)), torch.float32)
    ids = tokenizer(TEXT).input_ids
    expected = logits(model, ids)
    error = float((logits(loaded, ids) - expected).norm() / expected.norm())
    assert 0 < error < limit


def test_it_is_unpacked_once_and_known_by_its_own_hash(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    seen: list[str] = []
    folder = unpacked(tmp_path / "m.gguf", tmp_path / "cache", seen.append)
    assert "unpacking m.gguf" in seen
    (tmp_path / "m.gguf").rename(tmp_path / "n.gguf")
    seen.clear()
    assert unpacked(tmp_path / "n.gguf", tmp_path / "cache", seen.append) == folder
    assert "unpacking n.gguf" not in seen
    assert weights_fingerprint(folder, tmp_path / "cache", lambda: None) == folder.name.partition("-")[0]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing half-made stays"


def test_a_whole_run_from_a_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    train = {"max_steps": 4, "per_device_train_batch_size": 6, "learning_rate": 1e-2}
    losses = column(train_run(tmp_path / "run", make_profile(tmp_path / "m.gguf", rows, train=train)), "loss")
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_stretched_positions_of_llama_3_come_back(factor: float, tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": factor, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    model, _ = write_gguf(tmp_path / "m.gguf", rope_parameters=rope)
    folder = unpacked(tmp_path / "m.gguf", tmp_path / "cache", lambda detail: None)
    loaded = load_model(folder, ModelSection(name_or_path=str(folder)), torch.float32)
    ids = list(range(4, 204))
    assert torch.allclose(logits(loaded, ids), logits(model, ids), atol=1e-5)
    assert loaded.config.rope_parameters == rope


def test_positions_that_nobody_published_are_refused(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 5.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    write_gguf(tmp_path / "m.gguf", rope_parameters=rope)
    with pytest.raises(ModelError, match="stretches its positions"):
        unpacked(tmp_path / "m.gguf", tmp_path / "cache", lambda detail: None)


def test_a_tokenizer_that_splits_in_a_way_not_known_is_told(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", pre="poro-chat")
    rows = write_rows(tmp_path / "rows.jsonl", chats(4))
    prepared = prepare(make_profile(tmp_path / "m.gguf", rows, train={"max_steps": 1}), tmp_path, lambda detail: None)
    assert any("poro-chat" in warning for warning in prepared.warnings)


def test_smollm_splits_digits(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", pre="smollm")
    tokenizer = load_tokenizer(unpacked(tmp_path / "m.gguf", tmp_path / "cache", lambda detail: None))
    backend: Any = tokenizer.backend_tokenizer
    assert [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str("a12")] == ["a", "1", "2"]


def test_refusals_name_the_reason(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ModelError) as refusal:
            unpacked(path, tmp_path / "cache", lambda detail: None)
        return f"{refusal.value.message} {refusal.value.hint}"

    write_gguf(tmp_path / "lacking.gguf", without="blk.1.ffn_up.weight")
    assert "up_proj" in refused(tmp_path / "lacking.gguf")
    whole = (tmp_path / "lacking.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    assert "not a whole GGUF file" in refused(tmp_path / "cut.gguf")
    (tmp_path / "text.gguf").write_text("no model at all, but some text")
    assert "not a whole GGUF file" in refused(tmp_path / "text.gguf")
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(whole)
    assert "one part of a model" in refused(tmp_path / "m-00001-of-00002.gguf")
    alien = whole.replace(b"llama", b"alien")
    (tmp_path / "alien.gguf").write_bytes(alien)
    assert "alien" in refused(tmp_path / "alien.gguf")
    assert not list((tmp_path / "cache" / "models").iterdir())
