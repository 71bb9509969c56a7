"""K-quants: tensors have the types that llama.cpp gives them; the library that stores their numbers is asked."""

import msgspec
import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize, quantize

from ftui.engine.gguf_files import export_file, gguf_certificate, sample_texts
from ftui.engine.gguf_files.export_file import GgufExport
from ftui.engine.gguf_files.k_quants import MIXTURES, Kind, k_kind, k_quantizer
from ftui.errors import ModelError, UsageError
from ftui.helper import gguf_facts, quantize_tool
from ftui.helper.gguf_facts import ExportRequest
from ftui.launch.export_job import export_job
from tests.engine.gguf_files.conftest import MakeModel, needs_llama


@pytest.mark.parametrize(
    ("num_layers", "six_bits"),
    [
        (16, {0, 1, 4, 7, 10, 13, 14, 15}),  # as in the published Llama-3.2-1B-Instruct-Q4_K_M.gguf
        (32, {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31}),  # Meta-Llama-3-8B-Instruct-Q4_K_M.gguf
    ],
)
@pytest.mark.parametrize("part", ["attn_v", "ffn_down"])
def test_values_and_the_way_down_have_six_bits_in_layers_that_tell_most(
    num_layers: int, six_bits: set[int], part: str
) -> None:
    kinds = [
        k_kind(f"blk.{layer}.{part}.weight", 2048, Kind.Q4_K, num_layers, is_tied=True) for layer in range(num_layers)
    ]
    assert {layer for layer, kind in enumerate(kinds) if kind == Kind.Q6_K} == six_bits
    assert set(kinds) == {Kind.Q4_K, Kind.Q6_K}


@pytest.mark.parametrize(
    ("name", "length", "is_tied", "kinds"),
    [
        ("token_embd.weight", 2048, True, (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)),
        ("token_embd.weight", 2048, False, (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)),
        ("output.weight", 2048, False, (Kind.Q6_K, Kind.Q6_K, Kind.Q6_K)),
        ("output.weight", 576, False, (Kind.Q8_0, Kind.Q8_0, Kind.Q8_0)),
        ("blk.9.attn_q.weight", 2048, True, (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)),
        ("blk.9.attn_q.weight", 576, True, (Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)),  # SmolLM2-135M
        ("blk.9.attn_q.weight", 80, True, (Kind.F16, Kind.F16, Kind.F16)),
        ("blk.9.attn_qkv.weight", 768, True, (Kind.Q5_K, Kind.Q6_K, Kind.Q6_K)),  # GPT-2
        ("blk.0.ffn_down.weight", 1536, True, (Kind.Q6_K, Kind.Q6_K, Kind.Q6_K)),
    ],
)
def test_each_matrix_has_the_type_that_llama_cpp_gives_it(
    name: str, length: int, is_tied: bool, kinds: tuple[Kind, ...]
) -> None:
    expected = (Kind.Q6_K,) * 3 if is_tied and name.startswith("token_embd") else kinds
    assert tuple(k_kind(name, length, kind, 30, is_tied=is_tied) for kind in MIXTURES.values()) == expected


def test_what_the_tool_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXTURES, "q8_k", Kind.Q8_K)  # llama.cpp's own, for sums: no file has it
    rows = np.ones((2, 512), np.float32)
    with k_quantizer() as stored:
        assert np.array_equal(stored(rows, Kind.Q8_0), quantize(rows, Kind.Q8_0))
        with pytest.raises(ModelError, match=r"cannot store Q8_K:(.|\n)*unsupported quantization type"):
            stored(rows, Kind.Q8_K)


def test_without_the_tool_the_command_is_named(monkeypatch: pytest.MonkeyPatch, make_model: MakeModel) -> None:
    model, _ = make_model("llama")
    assert ("stored in", "q4_k_m") in export_job(model, None, "q4_k_m").plan
    monkeypatch.setattr(quantize_tool, "TOOL", "libgguf_that_is_not_there")
    with pytest.raises(UsageError, match="which is not there") as refused:
        export_job(model, None, "q4_k_m")
    assert "pip install 'finetune-tui[gguf]'" in refused.value.hint


@needs_llama
@pytest.mark.slow
def test_llama_cpp_reads_the_file(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 64 numbers: the mixture and the header are tried, the tool is not."""
    monkeypatch.setattr(sample_texts, "NUM_TEXTS", 100)
    monkeypatch.setattr(export_file, "NUM_REFERENCE", 4)
    monkeypatch.setitem(gguf_certificate.LIMITS, "q4_k_m", 10.0)  # a real model's is more of a tiny one
    monkeypatch.setitem(gguf_facts.MOST_KL, "q4_k_m", 0.3)
    monkeypatch.setitem(gguf_facts.LEAST_SAME_FIRST, "q4_k_m", 0.0)
    model, _ = make_model("llama-tied")
    wanted = ExportRequest("tiny", "q4_k_m", str(model), str(model.parent / "exports"))
    result = GgufExport(wanted, None, lambda detail: None).run()
    assert result.certificate is not None and result.certificate.num_equal == 100
    reader = GGUFReader(result.file)
    kinds = {str(tensor.name): tensor.tensor_type for tensor in reader.tensors}
    assert kinds["token_embd.weight"] == Kind.Q8_0 and kinds["blk.0.attn_q.weight"] == Kind.Q5_0
    assert reader.fields["general.file_type"].contents() == 15  # MOSTLY_Q4_K_M
    proof = msgspec.structs.replace(result.certificate, most_kl=result.certificate.mean_kl / 2)
    assert "the mean KL is" in str(proof.problem)


@pytest.mark.parametrize(("kind", "error"), [(Kind.Q4_K, 0.08), (Kind.Q5_K, 0.04), (Kind.Q6_K, 0.02)])
def test_the_tool_stores_what_gguf_reads(kind: Kind, error: float) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 512)).astype(np.float32)
    with k_quantizer() as stored:
        read = dequantize(stored(rows, kind), kind)
    assert 0 < np.sqrt(np.mean((read - rows) ** 2)) < error
