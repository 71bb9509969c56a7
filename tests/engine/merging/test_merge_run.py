"""Whole merges of what runs have trained: certified, published, and loaded by plain transformers."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, GenerationConfig

from ftui.engine.generation.load_trained import load_trained
from ftui.engine.merging import merge_run
from ftui.engine.merging.adapter_merge import AdapterMerge
from ftui.engine.merging.merge_run import Merge
from ftui.engine.merging.merge_start import begin
from ftui.engine.models.adapter_files import ADAPTER
from ftui.engine.models.load_model import load_model
from ftui.errors import ModelError
from ftui.helper.merge_facts import Certificate, MergeChoice, MergeResult
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import fault, read_manifest
from ftui.runs.run_folder import Run
from ftui.system import checked_write
from ftui.system.files import read_json
from tests.support.murder import kill_at
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


def merge(
    run: Run, target: Path, dtype: Any = "fp32", source: Path | None = None, profile: Profile | None = None, **more: Any
) -> MergeResult:
    source = source or run.final
    choice = MergeChoice(
        str(run.folder), str(source), source.name, str(target), dtype=dtype, num_rows=4, mark="same",
        replaces=target.exists(), **more,
    )  # fmt: skip
    return Merge(choice, profile or resolve(run.profile).profile, lambda detail: None).run()


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


@pytest.mark.slow
def test_a_reward_model_scores_as_it_did(trained: Callable[[str], Run], tmp_path: Path) -> None:
    run, out = trained("rm"), tmp_path / "out"
    agreement = merge(run, out).certificate.agreement
    assert agreement.mean_kl is None and agreement.logit_difference < 1e-3
    model = AutoModelForSequenceClassification.from_pretrained(out)
    assert model.config.num_labels == 1 and model.config.pad_token_id is not None
    weights = load_file(run.final / "adapter_model.safetensors")
    assert torch.equal(model.score.weight, weights["base_model.model.score.weight"])
    assert "lm_head.weight" not in load_file(out / "model.safetensors")


@pytest.mark.slow
def test_a_quantised_base_is_merged_as_it_computes_and_the_other_merge_is_measured_beside_it(
    trained: Callable[[str], Run], tmp_path: Path
) -> None:
    run = trained("qlora")
    original = merge(run, tmp_path / "original", into="original").certificate
    dequantised = merge(run, tmp_path / "dequantised").certificate
    assert dequantised.into_dequantised is None and dequantised.agreement.mean_kl is not None
    assert original.into_dequantised == dequantised.agreement
    assert original.agreement.mean_kl is not None
    assert original.agreement.mean_kl > 1e-4 > 1e-6 > dequantised.agreement.mean_kl
    assert "into the dequantised base" in (tmp_path / "original" / "README.md").read_text()


@pytest.mark.slow
def test_flash_attention_of_the_run_is_no_part_of_the_certificate(
    trained: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a run in bf16 on a card since Ampere: both models compute in float32, where flash attention cannot."""
    run = trained("lora")
    asked, settled = list[tuple[str, str]](), list[str]()

    def begin_on_card(*arguments: Any) -> Any:
        start = begin(*arguments)
        return replace(start, hardware=replace(start.hardware, precision="bf16", capability=80))

    def load(folder: Path, section: Any, *arguments: Any, hardware: Any, **options: Any) -> Any:
        asked.append((section.attn_implementation, hardware.precision))
        return load_model(folder, section, *arguments, hardware=hardware, **options)

    monkeypatch.setattr(merge_run, "begin", begin_on_card)
    monkeypatch.setattr(merge_run, "load_model", load)
    monkeypatch.setattr(merge_run, "settle_groups", lambda hardware: settled.append(hardware.precision))
    profile = resolve(run.profile).profile
    section = profile.model.model_copy(update={"attn_implementation": "flash_attention_2"})
    merge(run, tmp_path / "out", profile=profile.model_copy(update={"model": section}))
    assert asked == [("auto", "fp32")] * 2 and settled == ["fp32"] * 2


@pytest.mark.slow
def test_a_base_in_8_bits_is_merged_as_it_computes(trained: Callable[[str], Run], tmp_path: Path) -> None:
    agreement = merge(trained("8 bit"), tmp_path / "out").certificate.agreement
    assert agreement.mean_kl is not None and agreement.mean_kl < 1e-4


@pytest.mark.slow
def test_what_is_not_what_was_trained_is_not_published(
    trained: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, target = trained("lora"), tmp_path / "exports" / "out"
    merge(run, target)
    old = read_manifest(target)

    def lose(self: AdapterMerge, layer: Any, name: str, base: torch.Tensor) -> torch.Tensor:
        return base

    with monkeypatch.context() as patch:
        patch.setattr(AdapterMerge, "_merge", lose)  # a merge that forgets the adapter
        for dtype, hint in (("fp32", "report"), ("fp16", "the 11 binary"), ("bf16", "Type: ftui merge x")):
            with pytest.raises(ModelError, match=r"is not what was trained: .*; evaluation loss \d") as caught:
                merge(run, target, dtype, wider="ftui merge x --dtype fp16" if dtype == "bf16" else "")
            assert hint in caught.value.hint
            assert [path.name for path in target.parent.iterdir()] == ["out"] and read_manifest(target) == old
    agreement = merge(run, target, "bf16").certificate.agreement
    assert read_manifest(target) != old and agreement.mean_kl is not None and 0 < agreement.mean_kl < 1e-4


def changed_base(run: Run, adapter: Path, model: Path) -> None:
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")


def tensor_too_many(run: Run, adapter: Path, model: Path) -> None:
    rewrite(
        adapter, lambda tensors: tensors | {"base_model.model.model.layers.7.q_proj.lora_A.weight": torch.ones(4, 4)}
    )


def tensor_too_few(run: Run, adapter: Path, model: Path) -> None:
    rewrite(adapter, lambda tensors: dict(list(tensors.items())[1:]))


def tensor_of_another_shape(run: Run, adapter: Path, model: Path) -> None:
    rewrite(adapter, lambda tensors: {name: tensor[..., :2].clone() for name, tensor in tensors.items()})


def weight_not_finite(run: Run, adapter: Path, model: Path) -> None:
    rewrite(adapter, lambda tensors: {name: tensor * torch.inf for name, tensor in tensors.items()})


def rewrite(adapter: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(change(load_file(adapter / ADAPTER)), adapter / ADAPTER)


REFUSED = [
    (changed_base, "is not the one that was trained on"), (tensor_too_many, "that the merge would not use"),
    (tensor_too_few, "lacks "), (tensor_of_another_shape, "has the shape"), (weight_not_finite, "NaN, infinite"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "message"), REFUSED)
def test_what_is_refused(
    spoil: Callable[[Run, Path, Path], None], message: str, trained: Callable[[str], Run], tmp_path: Path
) -> None:
    run, adapter, model = trained("lora"), tmp_path / "final", tmp_path / "base"
    shutil.copytree(run.final, adapter)
    base = Path(str(resolve(run.profile).profile.model.name_or_path))
    text = run.profile.read_text()
    try:
        shutil.copytree(base, model)
        run.profile.write_text(text.replace(str(base), str(model)))
        spoil(run, adapter, model)
        with pytest.raises(ModelError, match=message):
            merge(run, tmp_path / "exports" / "out", source=adapter)
    finally:
        run.profile.write_text(text)
    assert not list((tmp_path / "exports").glob("*")) if (tmp_path / "exports").exists() else True


KILLS: list[tuple[Any, str, int, bool]] = [
    (checked_write, "write_all", 1, False), (checked_write, "write_all", 4, True),
    (checked_write, "write_all", 30, True), (merge_run, "measure", 2, False), (merge_run, "readme", 1, True),
    (checkpoint_folders, "write_manifest", 1, False), (checkpoint_folders, "write_manifest", 1, True),
    (checkpoint_folders, "rename_folder", 1, False), (checkpoint_folders, "rename_folder", 1, True),
    (checkpoint_folders, "rename_folder", 2, True), (checkpoint_folders, "discard", 1, True),
]  # fmt: skip


@pytest.mark.slow
def test_a_kill_anywhere_leaves_a_whole_folder_or_none(trained: Callable[[str], Run], tmp_path: Path) -> None:
    run, target = trained("lora"), tmp_path / "exports" / "out"
    seals = set()
    for owner, name, number, after in KILLS:
        pid = os.fork()
        if pid == 0:
            try:
                kill_at(owner, name, number, after=after)
                merge(run, target)
            finally:
                os._exit(1)  # it should have been killed
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL, (name, number)
        if target.exists():
            assert fault(target) is None, (name, number)
            seals.add(read_manifest(target).seal)
    merge(run, target)
    seals.add(read_manifest(target).seal)
    assert [path.name for path in target.parent.iterdir()] == ["out"] and len(seals) >= 1
