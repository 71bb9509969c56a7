"""The weights that a run began with are the reference where no adapter can be switched off."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from ftui.engine.offload import reference_weights
from ftui.engine.offload.reference_weights import ReferenceWeights
from ftui.engine.rollouts.rollout_files import read_rollout
from ftui.engine.training.measured_values import read_values
from ftui.runs.events import Step
from ftui.runs.records.rollout_records import RolloutMade
from ftui.runs.run_folder import Run
from tests.engine.reinforcement.test_rollout_runs import LetterCounter, facts, grpo
from tests.engine.reinforcement.test_rollout_runs import judge as judge
from tests.engine.reinforcement.test_rollout_runs import rows as rows
from tests.support.attempts import attempt, killed_attempt, records


def test_weights_change_places_and_come_back_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, those that lie transposed too, and where the block ends by an exception; frozen ones stay."""
    monkeypatch.setattr(reference_weights, "PIECE_BYTES", 12)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(5, 3), "b": torch.nn.Linear(3, 2)})
    model["b"].weight.data = torch.randn(3, 2).t()
    model["a"].bias.requires_grad_(False)
    began = {name: weight.clone() for name, weight in model.state_dict().items()}
    reference = ReferenceWeights(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))
    trained = {name: weight.clone() for name, weight in model.state_dict().items()}
    for _ in range(2):
        with pytest.raises(KeyError), reference.in_place():
            for name, weight in model.state_dict().items():
                assert torch.equal(weight, (trained if name == "a.bias" else began)[name]), name
            raise KeyError
        assert all(torch.equal(weight, trained[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(("bias", "is_kept"), [("none", False), ("lora_only", True), ("all", True)])
def test_trained_biases_are_held_to_where_they_began(bias: Any, is_kept: bool, tmp_path: Path) -> None:
    """PEFT switches an adapter off without them: what is left is the reference only where there are none."""
    profile = grpo(tmp_path, tmp_path / "rows.jsonl", adapter={"bias": bias}, grpo={"beta": 0.1})
    assert profile.keeps_reference == is_kept
    bare, inputs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)), torch.randn(2, 4)
    began = bare(inputs).detach()
    model: Any = get_peft_model(bare, LoraConfig(r=2, target_modules=["0"], bias=bias))
    reference = ReferenceWeights(model)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight))
        with reference.in_place():
            assert torch.equal(model(inputs), began)
        said = pytest.warns(UserWarning, match="does not produce the same output") if is_kept else nullcontext()
        with said, model.disable_adapter():
            assert torch.equal(model(inputs), began) != is_kept


@pytest.mark.slow
def test_full_fine_tuning_is_held_to_its_base(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept beside each rollout is the log-probability under the untouched base; a killed run has the same."""
    keys: dict[str, Any] = {
        "adapter": {"method": "full"}, "grpo": {"beta": 0.2}, "train": {"max_steps": 3},
        "checkpoint": {"save_steps": 1},
    }  # fmt: skip
    profile = grpo(model_folder, rows, **keys)
    run, cut = Run(tmp_path / "run"), Run(tmp_path / "cut")
    assert attempt(run, profile) == 0
    divergences = [step.extras["kl"] or 0.0 for step in records(run, Step)]
    assert divergences[0] == 0 and min(divergences[1:]) > 0
    base = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    for record in records(run, RolloutMade):
        rollout = read_rollout(run.rollouts, record.number, record.hash)
        values = read_values(run.rollouts / f"{record.number:06d}.log_probs.safetensors", record.hash)
        assert values is not None
        expected = []
        for number, answer in enumerate(rollout.completion_ids):
            ids = np.concatenate([rollout.prompt_ids[number // rollout.group_size], answer])
            with torch.no_grad():
                logits = base(torch.from_numpy(ids).long()[None]).logits[0, -len(answer) - 1 : -1]
            expected.append(logits.log_softmax(-1)[torch.arange(len(answer)), torch.from_numpy(answer).long()])
        assert np.abs(values["reference"] - torch.cat(expected).numpy()).max() < 1e-5
    killed_attempt(cut, profile, 1, monkeypatch)
    assert attempt(cut, profile, 2) == 0 and facts(cut) == facts(run)
