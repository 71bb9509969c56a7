"""An export is published whole and certified, or not at all."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftui.engine.gguf_files import export_file, gguf_certificate, tensors
from ftui.engine.gguf_files.export_file import GgufExport, export_gguf
from ftui.errors import DiskFullError, ModelError
from ftui.helper.gguf_facts import ExportRequest
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
@pytest.mark.parametrize("broken", ["rows of heads", "tokens"])
def test_a_file_that_answers_otherwise_is_not_published(
    broken: str, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken == "rows of heads":
        monkeypatch.setattr(tensors, "pair_neighbours", lambda values, heads: values)
        words = "a log-probability differs by"
    else:
        monkeypatch.setattr("ftui.engine.gguf_files.vocabulary._added_ends", lambda tokenizer: (False, True))
        words = "other tokens of 1000 of 1000 texts"
    wanted = request(make_model("llama")[0])
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
