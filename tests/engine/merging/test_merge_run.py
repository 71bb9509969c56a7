"""Whole merges of what runs have trained: certified, published, and loaded by plain transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ftui.engine.generation.load_trained import load_trained
from ftui.engine.merging.merge_run import Merge
from ftui.helper.merge_facts import Certificate, MergeChoice, MergeResult
from ftui.profile.layers import resolve
from ftui.runs.checkpoint_folders import fault, read_manifest
from ftui.runs.run_folder import Run
from ftui.system.files import read_json
from tests.support.tiny import chats, make_profile, preference_pairs, train_run, write_rows

IDS = torch.arange(3, 51).reshape(3, 16)
LORA: dict[str, Any] = {"method": "lora", "r": 4}
RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "lora": {"adapter": LORA | {"modules_to_save": ["norm"]}},
    "new tokens": {"adapter": LORA, "model": {"extra_special_tokens": ["<new>"]}},
    "qlora": {"adapter": {"method": "qlora", "r": 4}},
    "8 bit": {"adapter": LORA | {"load_in_8bit": True}},
    "rm": {"adapter": LORA, "run": {"stage": "rm"}},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Callable[[str], Run]:
    """A run of each kind, made when it is first asked for."""
    made: dict[str, Run] = {}

    def run_of(kind: str) -> Run:
        if kind not in made:
            folder, sections = tmp_path_factory.mktemp("run"), RUNS[kind]
            rows = preference_pairs(16) if "run" in sections else chats(16)
            profile = make_profile(
                model_folder, write_rows(folder / "rows.jsonl", rows), **sections, data={"eval_num_rows": 4},
                train={"max_steps": 8, "learning_rate": 2e-2}, checkpoint={"save_steps": 4},
            )  # fmt: skip
            train_run(folder / "run", profile)
            made[kind] = Run(folder / "run")
        return made[kind]

    return run_of


def merge(run: Run, target: Path, dtype: Any = "fp32", source: Path | None = None, **more: Any) -> MergeResult:
    source = source or run.final
    choice = MergeChoice(str(run.folder), str(source), source.name, str(target), dtype=dtype, num_rows=4, **more)
    return Merge(choice, resolve(run.profile).profile, lambda detail: None).run()


def logits_of(run: Run, source: Path, cache: Path) -> torch.Tensor:
    model = load_trained(resolve(run.profile).profile, source, cache, lambda detail: None)
    with model.answering("default"):
        result: torch.Tensor = model.bare(IDS).logits
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "new tokens", "qlora"])
def test_a_published_folder_loads_with_the_logits_of_base_and_adapter(
    kind: str, trained: Callable[[str], Run], tmp_path: Path
) -> None:
    run, out = trained(kind), tmp_path / "out"
    result = merge(run, out)
    assert fault(out) is None and read_manifest(out).fingerprints["source"] == read_manifest(run.final).seal
    assert {path.name for path in out.iterdir()} >= {
        "README.md", "certificate.json", "config.json", "generation_config.json", "tokenizer.json",
        "chat_template.jinja", "model.safetensors", "MANIFEST.json",
    }  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.float32 and json.loads((out / "config.json").read_bytes())["dtype"] == "float32"
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, logits_of(run, run.final, tmp_path), rtol=1e-4, atol=1e-3)
    certificate = read_json(out / "certificate.json", Certificate)
    assert certificate == result.certificate and certificate.rows == "evaluation rows"
    assert 0 < certificate.agreement.logit_difference < 1e-3 and certificate.agreement.top1 == 1
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template and ("<new>" in tokenizer.get_vocab()) == (kind == "new tokens")
    assert GenerationConfig.from_pretrained(out).eos_token_id == tokenizer.eos_token_id
    assert f"{certificate.agreement.loss_merged:.4f}" in (out / "README.md").read_text()
