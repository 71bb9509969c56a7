"""Methods through the whole engine, with what test_matrix.py does not combine: they learn, a killed run goes on as if
nothing had been, plain libraries load what comes out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ftui.engine.models.methods import freeze
from ftui.engine.models.weights import write_model
from ftui.errors import ModelError
from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs.events import EvaluationDone, RunFinished, RunStarted, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, killed_attempt, plain_loss, records
from tests.support.sameness import same_runs
from tests.support.tiny import chats, make_profile, write_rows
from tests.support.written import put

NUM_STEPS = 7

METHODS: dict[str, dict[str, Any]] = {
    "lora": {"method": "lora", "use_dora": True, "bias": "all", "modules_to_save": ["norm"]},
    "nf4": {"method": "qlora", "lora_dropout": 0.1, "layers_to_transform": [1]},
    "fp4": {"method": "qlora", "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False,
            "modules_to_save": ["embed_tokens", "lm_head"]},
}  # fmt: skip


def profile_of(model: Path, folder: Path, adapter: dict[str, Any]) -> Profile:
    return make_profile(
        model, write_rows(folder / "rows.jsonl", chats(40)), adapter={"r": 4, "lora_alpha": 16, **adapter},
        data={"eval_num_rows": 6}, eval={"eval_strategy": "steps", "eval_steps": 4},
        train={"max_steps": NUM_STEPS, "learning_rate": 1e-2, "weight_decay": 0.1},
        checkpoint={"save_steps": 3, "save_minutes": None},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_it_trains_goes_on_and_loads(
    method: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profile_of(model_folder, tmp_path, METHODS[method])
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    losses = [step.loss for step in records(whole, Step)]
    assert len(losses) == NUM_STEPS and sum(losses[-3:]) < sum(losses[:3]) - 1

    killed_attempt(cut, profile, 5, monkeypatch)
    assert attempt(cut, profile, 2) == 0
    started = records(cut, RunStarted)[-1]
    assert (started.reproducibility, started.start_step, started.reproducibility_reasons) == ("EXACT", 4, [])
    same_runs(cut, whole)
    assert plain_loss(profile, whole) == pytest.approx(records(whole, RunFinished)[-1].loss_final, abs=1e-4)


def test_a_run_goes_on_from_an_adapter(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins where the adapter is, and what comes out is again one plain adapter; another adapter is another run."""
    profile = profile_of(model_folder, tmp_path, {"method": "lora", "target_modules": ["q_proj", "up_proj"]})
    first, second = Run(tmp_path / "first"), Run(tmp_path / "second")
    assert attempt(first, profile) == 0
    brought = tmp_path / "brought"
    shutil.copytree(first.final, brought)
    config = brought / "adapter_config.json"

    more = profile_of(model_folder, tmp_path, {"method": "lora", "name_or_path": str(brought)})
    killed_attempt(second, more, 5, monkeypatch)
    reached = records(first, RunFinished)[-1].loss_final
    assert records(second, EvaluationDone)[0].loss == reached
    original = config.read_bytes()
    config.write_bytes(original + b"\n")
    with pytest.raises(ModelError, match="the adapter it continued from changed"):
        attempt(second, more, 2)
    config.write_bytes(original)
    assert attempt(second, more, 3) == 0
    assert records(second, RunStarted)[-1].reproducibility == "EXACT"
    final = records(second, RunFinished)[-1].loss_final
    assert final < reached
    assert plain_loss(more, second) == pytest.approx(final, abs=1e-4)
    assert json.loads((second.final / "adapter_config.json").read_bytes()) == json.loads(original)


def test_freeze_trains_what_is_named_and_nothing_else(model_folder: Path) -> None:
    def trained(**keys: Any) -> set[str]:
        model = AutoModelForCausalLM.from_pretrained(model_folder)
        section = AdapterSection.model_validate({"method": "freeze", **keys}, strict=False)
        freeze(model, section, frozen=torch.bfloat16)
        types = {weight.requires_grad: weight.dtype for weight in model.parameters()}
        assert types == {True: torch.float32, False: torch.bfloat16}
        return {name for name, weight in model.named_parameters() if weight.requires_grad}

    names = {name for name, _ in AutoModelForCausalLM.from_pretrained(model_folder).named_parameters()}
    assert trained(trainable_layers=1) == {name for name in names if ".layers.1." in name}
    assert trained(trainable_modules=["norm"]) == {name for name in names if "norm" in name}
    assert trained(trainable_layers=1, trainable_modules=[r"layers\.0\.mlp", "^lm_head"]) == {
        name for name in names if ".layers.1." in name or ".layers.0.mlp" in name or "lm_head" in name
    }
    with pytest.raises(ModelError, match="the model has 2 decoder layers"):
        trained(trainable_layers=3)
    with pytest.raises(ModelError, match="'wte' matches no weight") as caught:
        trained(trainable_modules=["wte"])
    assert "model.layers.N.mlp.up_proj.weight" in caught.value.hint


def test_a_model_of_two_types_is_read_in_the_wider_one(model_folder: Path, tmp_path: Path) -> None:
    section = AdapterSection(method="freeze", trainable_layers=1)
    model = freeze(AutoModelForCausalLM.from_pretrained(model_folder), section, frozen=torch.bfloat16)
    assert model.dtype == torch.bfloat16, "the type of the first weight, which is what transformers writes down"
    put(tmp_path, write_model(model, tmp_path))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.float32
    own = dict(model.named_parameters())
    assert all(torch.equal(weight, own[name].float()) for name, weight in loaded.named_parameters())


def test_freeze_trains_a_tied_head_under_either_name() -> None:
    config = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=1, tie_word_embeddings=True)  # fmt: skip
    for name in ("lm_head", "embed_tokens"):
        model = LlamaForCausalLM(config)
        freeze(model, AdapterSection(method="freeze", trainable_modules=(name,)), frozen=torch.bfloat16)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert [name for name, weight in model.named_parameters() if weight.requires_grad] == [
            "model.embed_tokens.weight"
        ]
