"""An export is published whole and certified, or not at all."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import torch

from ftui.engine.gguf_files import export_file, gguf_certificate, sample_texts, tensors
from ftui.engine.gguf_files.export_file import GgufExport, export_gguf
from ftui.errors import DiskFullError, ModelError
from ftui.helper import gguf_facts
from ftui.helper.gguf_facts import ExportRequest, Kind
from ftui.helper.merge_facts import MergeChoice
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import fault
from tests.engine.gguf_files.conftest import MakeModel, needs_llama
from tests.support.tiny import chats, make_profile, write_rows

REASON = "xllamacpp is not installed."


def request(folder: Path, **more: Any) -> ExportRequest:
    target = folder.parent / "exports" / "tiny-gguf"
    return ExportRequest("tiny", "f16", str(folder), str(target), **more)


@needs_llama
@pytest.mark.slow
def test_a_certified_file_stands_with_its_modelfile(make_model: MakeModel) -> None:
    wanted, said = request(make_model("llama")[0]), list[str]()
    result = export_gguf(
        said.append, {"name": "tiny", "kind": "f16", "weights": wanted.weights, "target": wanted.target}
    )
    target = Path(wanted.target)
    assert sorted(path.name for path in target.iterdir()) == [
        "MANIFEST.json", "Modelfile", "certificate.json", "tiny-f16.gguf"
    ]  # fmt: skip
    assert fault(target) is None
    proof = result.certificate
    assert proof is not None and proof.problem is None and result.template == "chatml"
    assert (proof.num_equal, proof.num_texts, proof.num_places) == (1000, 1000, 48)
    assert 0 < proof.largest_difference < 0.05
    assert json.loads((target / "certificate.json").read_text())["largest_difference"] == proof.largest_difference
    assert any(text.startswith("writing: ") for text in said)


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize("broken", ["rows of heads", "rows of one matrix, in 8 bits", "tokens"])
def test_a_file_that_answers_otherwise_is_not_published(
    broken: str, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Kind = "f16"
    if broken != "tokens":
        monkeypatch.setattr(sample_texts, "NUM_TEXTS", 100)
    if broken == "rows of heads":
        monkeypatch.setattr(tensors, "pair_neighbours", lambda values, heads: values)
        words = "a log-probability differs by"
    elif broken == "rows of one matrix, in 8 bits":
        pair, numbers = tensors.pair_neighbours, itertools.count()
        monkeypatch.setattr(
            tensors, "pair_neighbours", lambda values, heads: pair(values, heads) if next(numbers) else values
        )
        monkeypatch.setitem(gguf_certificate.LIMITS, "q8_0", 10.0)  # a real model's 2.5 is more of a tiny one
        monkeypatch.setitem(gguf_facts.LEAST_SAME_FIRST, "q8_0", 0.0)
        words, kind = "the mean KL is 0.1", "q8_0"
    else:
        monkeypatch.setattr("ftui.engine.gguf_files.vocabulary._added_ends", lambda tokenizer: (False, True))
        words = "other tokens of 1000 of 1000 texts"
    wanted = msgspec.structs.replace(request(make_model("llama")[0]), kind=kind)
    with pytest.raises(ModelError, match=f"not published: .*{words}"):
        GgufExport(wanted, None, lambda detail: None).run()
    assert list(Path(wanted.target).parent.iterdir()) == []


def test_without_the_library_it_says_what_was_not_measured(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "why_not_measured", lambda: REASON)
    wanted = request(make_model("llama")[0])
    result = GgufExport(wanted, None, lambda detail: None).run()
    assert (result.certificate, result.reason) == (None, REASON)
    assert Path(result.file).stat().st_size == result.num_bytes
    assert not (Path(wanted.target) / "certificate.json").exists()


def test_what_the_library_needs_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_certificate, "find_spec", lambda name: object())
    monkeypatch.setattr(gguf_certificate, "machine", lambda: "x86_64")
    monkeypatch.setattr(gguf_certificate, "cpu_flags", lambda: {"sse4_2", "avx", "f16c"})
    assert "has no avx2, bmi2, fma" in str(gguf_certificate.why_not_measured())
    monkeypatch.setattr(gguf_certificate, "cpu_flags", lambda: gguf_certificate.INSTRUCTIONS)
    assert gguf_certificate.why_not_measured() is None
    monkeypatch.setattr(gguf_certificate, "find_spec", lambda name: None)
    assert "finetune-tui[gguf]" in str(gguf_certificate.why_not_measured())


@pytest.mark.parametrize("alone", [True, False])
def test_an_adapter_is_written_for_the_base_of_its_run(
    alone: bool, make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make_model("llama")
    profile = make_profile(folder, write_rows(tmp_path / "rows.jsonl", chats(4)), adapter={"method": "lora"})
    manifest = SimpleNamespace(fingerprints={"base_model": "0" * 64})
    monkeypatch.setattr(export_file, "read_manifest", lambda folder: manifest)
    wanted = request(folder, run=str(tmp_path / "run"), is_adapter=True, alone=alone)
    with pytest.raises(ModelError, match="is not the one that was trained on"):
        GgufExport(wanted, profile, lambda detail: None).run()


def test_a_full_disk_is_told_before_anything_is_written(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = request(make_model("llama")[0])
    monkeypatch.setattr("ftui.system.volume.free_bytes", lambda folder: 1 << 20)
    with pytest.raises(DiskFullError, match="needed"):
        GgufExport(wanted, None, lambda detail: None).run()
    assert list(Path(wanted.target).parent.iterdir()) == []


def test_a_model_without_a_known_template_gets_no_modelfile(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_file, "why_not_measured", lambda: REASON)
    folder, _ = make_model("llama")
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    result = GgufExport(request(folder), None, lambda detail: None).run()
    assert result.template == "" and not (Path(result.file).parent / "Modelfile").exists()
    assert result.notes == ["no Modelfile: the chat template is of no family that is known"]


def test_the_divergence_is_that_of_the_likeliest_tokens_and_of_all_others_as_one() -> None:
    expected, other = (torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(n)), 0) for n in (1, 2))
    likeliest = expected.topk(20).indices.tolist()
    rest = [one for one in range(50) if one not in likeliest]
    joined = [torch.cat([side[likeliest], side[rest].sum()[None]]) for side in (expected, other)]
    ours = {token: float(expected[token].log()) for token in likeliest}
    theirs = {token: float(other[token].log()) for token in range(50)}
    wanted = float(torch.nn.functional.kl_div(joined[1].log(), joined[0], reduction="sum"))
    assert gguf_certificate.divergence(ours, theirs) == pytest.approx(wanted, rel=1e-4)
    assert gguf_certificate.divergence(ours, ours) == 0
    assert gguf_certificate.divergence({0: 0.0}, {1: 0.0}) == 0 < gguf_certificate.divergence({0: 0.0}, {1: -20.0})


@pytest.mark.parametrize(
    ("kind", "dtype", "wider"),
    [("f16", "fp16", ""), ("q8_0", "fp16", ""), ("bf16", "bf16", "ftui export 'my run@final' --gguf f16")],
)
def test_files_are_made_of_merges_in_the_type_with_the_most_digits_that_they_can_hold(
    kind: Kind, dtype: str, wider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = list[MergeChoice]()

    class Noted:
        def __init__(self, choice: MergeChoice, *rest: Any) -> None:
            chosen.append(choice)

        def run(self) -> Any:
            return Mock()

    monkeypatch.setattr(export_file, "Merge", Noted)
    wanted = msgspec.structs.replace(request(tmp_path), kind=kind, run="/runs/my run", title="final")
    GgufExport(wanted, Profile.model_construct(), lambda detail: None)._merge(tmp_path)
    assert [(one.dtype, one.wider) for one in chosen] == [(dtype, wider)]
