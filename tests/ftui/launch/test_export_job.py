"""What `ftui export` checks before a process is asked."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.errors import DiskFullError, UsageError
from ftui.helper.gguf_facts import ExportRequest, ExportResult, GgufCertificate
from ftui.launch.export_job import export_job, result_rows
from ftui.runs.checkpoint_folders import MARK, exporting, read_manifest
from tests.support.replayed import run_with_checkpoint


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F16", "shape": [2, 4], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(16)))
    return folder


def test_a_folder_with_a_model_needs_no_run(model: Path) -> None:
    job = export_job(model, None, "q8_0")
    plan = {line[0]: line[1] for line in job.plan}
    assert plan["writes"] == str(model.parent / "model-q8_0-gguf" / "model-q8_0.gguf")
    assert "needed" in plan["disk"]


def test_what_is_there_already_is_asked_before(model: Path) -> None:
    out = model.parent / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is no export, and holds notes\.txt"):
        export_job(model, None, "f16", out=out)


def test_only_the_same_file_of_the_same_weights_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, requests, out = run_with_checkpoint(tmp_path, monkeypatch), list[ExportRequest](), tmp_path / "out"

    class Noted:
        def ask(self, method: str, *, request: Any, **rest: Any) -> Any:
            requests.append(msgspec.convert(request, ExportRequest))
            return msgspec.to_builtins(ExportResult("x", 1, None, "", "", []))

    def export(kind: Any) -> list[str]:
        job = export_job(run, None, kind, out=out)
        job.run(Noted(), print)  # type: ignore[arg-type]
        return [line[0] for line in job.plan]

    assert "replaces" not in export("f16") and not requests[0].replaces
    manifest = read_manifest(run.checkpoints / "checkpoint-150")
    with exporting(out, msgspec.structs.replace(manifest, fingerprints={MARK: requests[0].mark})) as staged:
        staged.write(requests[0].file_name, [b"x"])
    assert "replaces" in export("f16") and requests[1].replaces
    with pytest.raises(UsageError, match=f"in another way, and holds {requests[0].file_name}"):
        export("q8_0")


def test_room_is_asked_before(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftui.system.volume.free_bytes", lambda folder: 1 << 20)
    with pytest.raises(DiskFullError, match="needed"):
        export_job(model, None, "f16")


@pytest.mark.parametrize(
    ("kind", "alone", "words"), [("q8_0", True, "not stored in q8_0"), ("f16", True, "from the run that trained it")]
)
def test_adapters_are_exported_from_runs(kind: Any, alone: bool, words: str, model: Path) -> None:
    with pytest.raises(UsageError) as raised:
        export_job(model, None, kind, alone=alone)
    assert words in raised.value.message


PROOF = GgufCertificate(1000, 1000, "", "evaluation rows", 48, 0.031, 0.05, 47, 1e-5)


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        (PROOF, ["the same on 1000 of 1000", "differ by 0.031", "0.05 allowed", "47 of 48 places of evaluation rows"]),
        (None, ["not measured: no library"]),
    ],
)
def test_the_result_says_what_was_measured(proof: GgufCertificate | None, words: list[str]) -> None:
    rows = result_rows(ExportResult("x/m.gguf", 3 << 20, proof, "no library", "chatml", ["beware"]))
    text = "\n".join("  ".join(row) for row in rows)
    for word in [*words, "x/m.gguf (3.0 MiB)", "ollama create", "beware"]:
        assert word in text


def test_the_likeliest_token_must_mostly_be_the_same() -> None:
    few, enough = (GgufCertificate(1000, 1000, "", "rows", 48, 1.2, 2.5, same, 0.006) for same in (35, 36))
    assert "the same at 35 of 48 places only" in str(few.problem) and enough.problem is None


@pytest.mark.parametrize(("num_equal", "difference", "kl", "words"), [
    (999, 0.0, 0.0, "other tokens of 1 of 1000 texts, say of 'a b'"), (1000, 0.06, 0.0, "differs by 0.060"),
    (1000, float("nan"), 0.0, "differs by nan"), (1000, 0.0, 0.063, "mean KL is 0.063 nats; at most 0.02"),
    (1000, 0.0, float("nan"), "mean KL is nan"),
])  # fmt: skip
def test_a_certificate_names_its_problem(num_equal: int, difference: float, kl: float, words: str) -> None:
    assert words in str(GgufCertificate(1000, num_equal, "a b", "rows", 48, difference, 0.05, 48, kl).problem)
    assert PROOF.problem is None
