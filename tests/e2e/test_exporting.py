"""`ftui export` as people use it, on what a real run has trained."""

import json

import pytest

from ftui.runs.checkpoint_folders import fault
from tests.engine.gguf_files.conftest import needs_llama
from tests.support.bench import Workbench


@needs_llama
@pytest.mark.slow
def test_what_a_run_has_trained_is_exported_merged_and_alone(workbench: Workbench) -> None:
    done = workbench.ftui("run", str(workbench.profile("mine")), "--set", "eval.sample_prompts=[]")
    assert done.returncode == 0, done.stderr
    exported = workbench.ftui("export", "mine", "--gguf", "f16", "--adapter")
    assert exported.returncode == 0, exported.stderr + exported.stdout
    folder = workbench.run("mine").exports / "final-adapter-f16-gguf"
    assert fault(folder) is None and (folder / "mine-adapter-f16.gguf").is_file()
    assert "places of evaluation rows" in exported.stdout
    assert "the same on 1000 of 1000 texts" in exported.stdout
    merged = workbench.ftui("export", "mine", "--gguf", "f16")
    assert merged.returncode == 0, merged.stderr + merged.stdout
    folders = sorted(path.name for path in workbench.run("mine").exports.iterdir())
    assert folders == ["final-adapter-f16-gguf", "final-f16-gguf"], "the merged model does not stay"
    proof = json.loads((workbench.run("mine").exports / "final-f16-gguf" / "certificate.json").read_text())
    assert proof["largest_difference"] <= proof["limit"] and proof["num_equal"] == 1000
    refused = workbench.ftui("export", "mine", "--gguf", "q8_0", "--adapter")
    assert refused.returncode == 2 and "not stored in q8_0" in refused.stderr
