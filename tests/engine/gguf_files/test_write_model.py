"""A GGUF file in llama.cpp answers as the model in transformers, in float32, of which it was made."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ftui.engine.gguf_files import tensors
from ftui.engine.gguf_files.gguf_architectures import ARCHITECTURES
from ftui.engine.gguf_files.gguf_certificate import NUM_ASKED, ask_llama, largest_difference, measure_reference
from ftui.engine.gguf_files.llama_process import Questions
from ftui.engine.gguf_files.write_model import model_pieces, plan_model
from ftui.errors import ModelError
from tests.engine.gguf_files.conftest import KINDS, MakeModel, needs_llama

IDS = [[(7 * n + 3 * n * n) % 290 for n in range(60)], [(11 * n + 5) % 290 for n in range(33)]]


def written(folder: Path, kind: str = "f16") -> Path:
    plan = plan_model(folder, kind)
    file = folder.parent / f"{kind}.gguf"
    with file.open("wb") as out:
        out.writelines(model_pieces(plan, "tiny"))
    assert file.stat().st_size <= plan.num_bytes
    return file


def difference(file: Path, model: Any, adapter: Path | None = None) -> float:
    reference = measure_reference(model, IDS)
    questions = Questions(str(file), [], reference.prompts, NUM_ASKED, None if adapter is None else str(adapter))
    answers = ask_llama(questions, file)
    return max(largest_difference(*pair) for pair in zip(reference.likeliest, answers.likeliest, strict=True))


FAST = ("llama", "qwen3")


@needs_llama
@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_every_architecture_answers_as_in_transformers(kind: str, make_model: MakeModel) -> None:
    folder, model = make_model(kind)
    assert difference(written(folder), model) <= 0.05


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "limit"), [("bf16", 0.3), ("q8_0", 0.5)])
def test_every_storage(kind: str, limit: float, make_model: MakeModel) -> None:
    folder, model = make_model("llama")
    assert 0.001 < difference(written(folder, kind), model) <= limit


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("llama", {"hidden_act": "gelu"}, "activation is 'gelu'"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "'dynamic'"),
        ("gemma2", {"query_pre_attn_scalar": 99}, "query_pre_attn_scalar is 99"),
        ("gemma3_text", {"layer_types": ["full_attention"] * 7}, "order of layers"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scaling by layer"),
    ],
)
def test_what_llama_computes_otherwise_is_refused(
    kind: str, keys: dict[str, Any], words: str, make_model: MakeModel
) -> None:
    folder, _ = make_model(kind, **keys)
    with pytest.raises(ModelError, match=words):
        plan_model(folder, "f16")


def test_an_architecture_that_is_not_verified_is_refused_with_those_that_are(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make_model("llama")
    monkeypatch.delitem(ARCHITECTURES, "llama")
    with pytest.raises(ModelError, match="'llama'") as raised:
        plan_model(folder, "f16")
    assert "gemma3_text, gpt2, mistral, qwen2, qwen3" in raised.value.hint


@pytest.mark.parametrize(
    ("value", "kind", "words"), [(7e4, "f16", "holds 70000"), (float("nan"), "bf16", "holds nan"), (7e4, "bf16", "")]
)
def test_numbers_that_a_type_cannot_hold(value: float, kind: str, words: str, make_model: MakeModel) -> None:
    folder, model = make_model("llama")
    with torch.no_grad():
        model.lm_head.weight[3, 5] = value
    model.save_pretrained(folder)
    plan = plan_model(folder, kind)
    if not words:
        assert sum(len(piece) for piece in model_pieces(plan, "tiny"))
        return
    with pytest.raises(ModelError, match=words):
        list(model_pieces(plan, "tiny"))


def test_weights_that_are_not_those_of_the_config_are_refused(make_model: MakeModel) -> None:
    folder, model = make_model("llama")
    state = model.state_dict()
    del state["model.layers.1.mlp.up_proj.weight"]
    model.save_pretrained(folder, state_dict=state)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj"):
        plan_model(folder, "f16")


def test_a_large_tensor_is_written_in_pieces(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by a piece where rows keep their places, and the file is the same."""
    folder, _ = make_model("llama")
    whole = b"".join(model_pieces(plan_model(folder, "q8_0"), "tiny"))
    monkeypatch.setattr(tensors, "PIECE", 64 * 10)
    pieces = list(model_pieces(plan_model(folder, "q8_0"), "tiny"))
    assert b"".join(pieces) == whole
    assert sum(len(piece) == 10 * 64 // 32 * 34 for piece in pieces) >= 30, "of embedding and head"
