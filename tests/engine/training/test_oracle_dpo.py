"""Whole runs of the stage dpo against TRL's DPOTrainer: the same pairs, weights and settings, the same eight steps.

Ours is the whole real engine, read through its metrics file; its reference is measured before the first step. TRL gets
its pairs as text, in the order of our plan. Losses must agree to 5e-6; rewards to 3e-5, as TRL adds
the log-probabilities of an answer in float32.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from ftui.engine.training.prepare import prepare
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder
from tests.support.tiny import Rows, column, make_profile, make_tokenizer, train_run, write_rows

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "max_grad_norm": 1.0,
    "max_steps": 8, "seed": 5,
}  # fmt: skip
LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0}
METRICS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen")


def pairs(number: int) -> Rows:
    """Prompts with a short and a long answer; either may be the better one."""
    rows: Rows = []
    for index in range(number):
        short, long = f"number {index}", f"it is number {index} of {number}, " * (1 + index % 4)
        chosen, rejected = (short, long) if index % 3 else (long, short)
        rows.append({"prompt": f"which row is row {index}? ", "chosen": chosen, "rejected": rejected})
    return rows


def trl_steps(profile: Profile, model: Path, folder: Path, rows: Rows) -> list[dict[str, float]]:
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    plan = prepare(profile, cache_folder(Path()), lambda detail: None).plan
    order = [index for step in range(1, plan.max_steps + 1) for (index,) in plan.step(step)]
    torch.manual_seed(5)
    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if profile.adapter.method == "lora":
        policy = get_peft_model(policy, LoraConfig(**LORA, target_modules="all-linear", task_type="CAUSAL_LM"))
    preference, train = profile.preference, profile.train
    losses = preference.weighted_losses("dpo")
    trainer = DPOTrainer(
        model=policy,
        args=DPOConfig(
            **SETTINGS, output_dir=str(folder), beta=preference.beta, loss_type=[name for name, _ in losses],
            loss_weights=[factor for _, factor in losses],
            per_device_train_batch_size=train.per_device_train_batch_size,
            gradient_accumulation_steps=train.gradient_accumulation_steps, optim=train.optim, max_length=None,
            train_sampling_strategy="sequential", logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
            bf16=False, activation_checkpointing=False, disable_tqdm=True, dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_list([rows[index] for index in order]),
        processing_class=make_tokenizer(),
    )  # fmt: skip
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(
    ("method", "losses", "size"),
    [
        ("full", {"sigmoid": 1.0}, 2), ("lora", {"sigmoid": 1.0}, 2), ("full", {"ipo": 1.0}, 2),
        ("lora", {"apo_zero": 1.0}, 4), ("full", {"sigmoid": 1.0, "sft": 0.5}, 4),
    ],
)  # fmt: skip
def test_eight_steps_are_trl_s(
    method: str, losses: dict[str, float], size: int, model_folder: Path, tmp_path: Path
) -> None:
    """With `sft` TRL averages over a micro-batch, we over the step: there each step has one."""
    rows = pairs(40)
    profile = make_profile(
        model_folder, write_rows(tmp_path / "rows.jsonl", rows), run={"stage": "dpo"},
        adapter={"method": method, **(LORA if method == "lora" else {})},
        preference={"beta": 0.3, "loss_type": list(losses), "loss_weights": list(losses.values())},
        train=SETTINGS | {"per_device_train_batch_size": size, "gradient_accumulation_steps": 4 // size},
    )  # fmt: skip
    steps = train_run(tmp_path / "run", profile)
    oracle = trl_steps(profile, model_folder, tmp_path / "trl", rows)
    assert len(steps) == len(oracle) == 8
    found, expected = column(steps, "loss"), np.array([entry["loss"] for entry in oracle])
    assert np.ptp(found) > 1e-2, "nothing was learned, so nothing is compared"
    np.testing.assert_allclose(found, expected, rtol=5e-6, atol=5e-6)
    np.testing.assert_allclose(column(steps, "grad_norm"), [entry["grad_norm"] for entry in oracle], rtol=1e-4)
    for name in METRICS:
        ours = np.array([step.extras[name] for step in steps], dtype=float)
        theirs = np.array([entry[name] for entry in oracle])
        np.testing.assert_allclose(ours, theirs, rtol=5e-6, atol=3e-5, err_msg=name)
