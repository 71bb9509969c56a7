"""Sweeps of wandb and Axolotl become a sweep.toml that is read; what is left out is named."""

from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.sweep.import_sweep import import_sweep
from ftui.sweep.space import ValueList, ValueRange
from ftui.sweep.sweep_plan import plan_of

WANDB = """program: train.py
method: bayes
metric: {name: eval/loss, goal: minimize}
run_cap: 30
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-5, max: 1e-3}
  lora_r: {values: [8, 16, 32]}
  weight_decay: {distribution: uniform, min: 0.0, max: 0.1}
  optimizer: {values: [adamw_torch, adafactor]}
  epochs: {value: 3}
  seed: {values: [1, 2]}
early_terminate: {type: hyperband, min_iter: 3}
"""


def test_a_sweep_of_wandb(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(WANDB)
    result = import_sweep(tmp_path / "sweep.yaml")
    plan = plan_of(result.text, tmp_path / "sweep.toml")
    assert (plan.sampler, plan.trials) == ("gp", 30)
    assert plan.space[:3] == (
        ValueRange("train.learning_rate", 1e-5, 1e-3, log=True), ValueList("adapter.r", (8, 16, 32)),
        ValueRange("train.weight_decay", 0.0, 0.1),
    )  # fmt: skip
    left_out = "\n".join(result.dropped)
    assert "train.seed is luck" in left_out and "epochs: one value" in left_out and "rungs are steps" in left_out


def test_a_sweep_of_axolotl_is_a_grid(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("learning_rate: [0.0003, 0.0006]\nlora_alpha: [16, 32]\nsequence_len: [512]\n")
    result = import_sweep(tmp_path / "sweep.yaml")
    plan = plan_of(result.text, tmp_path / "sweep.toml")
    assert (plan.sampler, plan.trials) == ("grid", 4)
    assert plan.space == (ValueList("train.learning_rate", (3e-4, 6e-4)), ValueList("adapter.lora_alpha", (16, 32)))
    assert "sequence_len" in result.dropped[0]


def test_a_file_of_llamafactory_with_lists_is_a_grid(tmp_path: Path) -> None:
    text = (
        "stage: sft\nlora_target: all\nlora_rank: [8, 16]\nlearning_rate: [1.0e-4, 2.0e-4, 4.0e-4]\ncutoff_len: 512\n"
    )
    (tmp_path / "grid.yaml").write_text(text)
    result = import_sweep(tmp_path / "grid.yaml")
    plan = plan_of(result.text, tmp_path / "sweep.toml")
    assert (plan.sampler, plan.trials) == ("grid", 6)
    assert plan.space == (ValueList("adapter.r", (8, 16)), ValueList("train.learning_rate", (1e-4, 2e-4, 4e-4)))
    told = "stage, lora_target, cutoff_len: have one value each; `ftui import grid.yaml` makes a profile of them"
    assert result.dropped == [told]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("lora_target_modules: [q_proj, v_proj]\nlora_r: 8\n", "no sweep"),
        ("base_model: x\n", "no sweep"),
        ("seed: [1, 2]\n", "no key that can be"),
    ],
)
def test_what_is_no_sweep(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(ProfileError, match=what):
        import_sweep(tmp_path / "sweep.yaml")
