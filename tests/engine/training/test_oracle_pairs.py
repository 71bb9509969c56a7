"""Whole runs of the stages that compare answers against TRL's trainers: the same rows, weights, settings, eight steps.

Ours is the whole real engine, read through its metrics file; its reference is measured before the first step. TRL gets
its pairs as text, in the order of our plan. Losses must agree to 5e-5 of their size
(one kind of processor gives 1e-6, another 2e-5); rewards to 3e-5, as TRL adds
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

from ftui.engine.data import mismatched
from ftui.engine.training.prepare import prepare
from ftui.profile.schema import Profile
from ftui.runs.events import Step
from ftui.system.user_folders import cache_folder
from tests.support.tiny import Rows, column, make_profile, make_tokenizer, train_run, write_rows

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "max_grad_norm": 1.0,
    "max_steps": 8, "seed": 5,
}  # fmt: skip
ONE_MICRO_BATCH = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
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


def judged(number: int) -> Rows:
    """The same answers one by one, two good ones to each bad one."""
    sides = ["chosen" if index % 3 else "rejected" for index in range(number)]
    return [
        {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
        for pair, side in zip(pairs(number), sides, strict=True)
    ]


def without_prompt(number: int) -> Rows:
    """TRL's cross-entropy of ORPO is that of the prompt, too: here there is none."""
    return [pair | {"prompt": "", "chosen": pair["prompt"] + pair["chosen"]} for pair in pairs(number)]


def trl_steps(profile: Profile, model: Path, folder: Path, rows: Rows) -> list[dict[str, float]]:
    order = order_of(profile)
    torch.manual_seed(5)
    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if profile.adapter.method == "lora":
        policy = get_peft_model(policy, LoraConfig(**LORA, target_modules="all-linear", task_type="CAUSAL_LM"))
    config, trainer_of = trl_classes(profile.run.stage)
    train = profile.train
    trainer = trainer_of(
        model=policy,
        args=config(
            **SETTINGS, **trl_keys(profile), output_dir=str(folder),
            optim=train.optim, max_length=None,
            per_device_train_batch_size=train.per_device_train_batch_size, logging_steps=1, save_strategy="no",
            gradient_accumulation_steps=train.gradient_accumulation_steps, report_to=[], use_cpu=True, bf16=False,
            train_sampling_strategy="sequential", activation_checkpointing=False, disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_list([rows[index] for index in order]),
        processing_class=make_tokenizer(),
    )  # fmt: skip
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def order_of(profile: Profile) -> list[int]:
    plan = prepare(profile, cache_folder(Path()), lambda detail: None).plan
    return [index for step in range(1, plan.max_steps + 1) for (index,) in plan.step(step)]


def trl_classes(stage: str) -> tuple[Any, Any]:
    if stage == "dpo":
        from trl.trainer.dpo_config import DPOConfig
        from trl.trainer.dpo_trainer import DPOTrainer

        return DPOConfig, DPOTrainer
    if stage == "kto":
        from trl.trainer.kto_config import KTOConfig
        from trl.trainer.kto_trainer import KTOTrainer

        return KTOConfig, KTOTrainer
    if stage == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        return ORPOConfig, ORPOTrainer
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    return CPOConfig, CPOTrainer


def trl_keys(profile: Profile) -> dict[str, Any]:
    keys, stage = profile.preference, profile.run.stage
    if stage == "simpo":
        return {"beta": keys.beta, "loss_type": "simpo", "simpo_gamma": keys.simpo_gamma, "cpo_alpha": 0.0}
    if stage == "orpo":
        return {"beta": keys.beta}
    names, factors = zip(*keys.weighted_losses(stage), strict=True)
    if stage == "kto":
        weights = {"desirable_weight": keys.desirable_weight, "undesirable_weight": keys.undesirable_weight}
        return {"beta": keys.beta, "loss_type": names[0], **weights}
    smoothing = {"label_smoothing": keys.label_smoothing}
    if stage == "cpo":
        return {"beta": keys.beta, "loss_type": names[0], "cpo_alpha": keys.cpo_alpha, **smoothing}
    return {
        "beta": keys.beta, "loss_type": list(names), "loss_weights": list(factors), "ld_alpha": keys.ld_alpha,
        "use_weighting": keys.use_weighting, **smoothing,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "method", "size", "preference"),
    [
        ("dpo", "full", 2, {}),
        ("dpo", "lora", 2, {}),
        ("dpo", "full", 2, {"loss_type": "ipo"}),
        ("dpo", "lora", 4, {"loss_type": "apo_zero"}),
        ("dpo", "full", 4, {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}),
        ("dpo", "full", 2, {"ld_alpha": 0.5}),
        ("dpo", "lora", 2, {"use_weighting": True}),
        *(
            ("dpo", "lora" if name in ("nca_pair", "discopop") else "full", 2, {"loss_type": name})
            for name in ("hinge", "nca_pair", "bco_pair", "discopop", "apo_down", "sigmoid_norm")
        ),
        ("dpo", "lora", 2, {"loss_type": "robust", "label_smoothing": 0.2}),
        ("dpo", "full", 2, {"loss_type": "exo_pair", "label_smoothing": 0.1}),
        ("dpo", "full", 4, {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0]}),
        ("dpo", "lora", 2, {"loss_type": "ipo", "ld_alpha": 0.0}),
        ("simpo", "full", 2, {"simpo_gamma": 0.7}),
        ("cpo", "lora", 4, {}),
        ("cpo", "full", 4, {"loss_type": "hinge", "cpo_alpha": 0.5}),
        ("cpo", "lora", 4, {"loss_type": "ipo", "cpo_alpha": 0.0}),
        ("cpo", "full", 4, {"label_smoothing": 0.1}),
    ],
)
def test_eight_steps_are_trl_s(
    stage: str, method: str, size: int, preference: dict[str, Any], model_folder: Path, tmp_path: Path
) -> None:
    """With a cross-entropy TRL averages over a micro-batch, we over the step: there each step has one."""
    steps, oracle = both(stage, method, size, preference, pairs(40), model_folder, tmp_path)
    for name in METRICS:
        ours = np.array([step.extras[name] for step in steps], dtype=float)
        theirs = np.array([entry[name] for entry in oracle])
        np.testing.assert_allclose(ours, theirs, rtol=5e-6, atol=3e-5, err_msg=name)


def test_eight_steps_of_sppo_are_trl_s(model_folder: Path, tmp_path: Path) -> None:
    """It squares sums of log-probabilities, which TRL rounds to float32: short answers have small ones."""
    rows = [{"prompt": f"row {n}? ", "chosen": f"{n}", "rejected": "no"} for n in range(40)]
    both("dpo", "full", 2, {"loss_type": "sppo_hard"}, rows, model_folder, tmp_path)


def test_eight_steps_of_orpo_are_trl_s(model_folder: Path, tmp_path: Path) -> None:
    both("orpo", "full", 4, {}, without_prompt(40), model_folder, tmp_path)


@pytest.mark.parametrize(
    ("method", "preference"),
    [
        ("full", {}),
        ("lora", {"desirable_weight": 0.7, "undesirable_weight": 1.4}),
        ("lora", {"loss_type": "apo_zero_unpaired"}),
    ],
)
def test_eight_steps_of_kto_are_trl_s(
    method: str, preference: dict[str, Any], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL gives each prompt the answer before its own in the micro-batch: so do we here, where a step has one."""

    def before(indices: np.ndarray, rows: np.ndarray, seed: int) -> np.ndarray:
        partners = np.roll(indices, 1)
        for start in range(0, len(order), 4):
            partners[order[start : start + 4]] = np.roll(indices[order[start : start + 4]], 1)
        return partners

    order = list[int]()
    monkeypatch.setenv("FTUI_CACHE", str(tmp_path / "cache"))  # nobody else may find what these partners have measured
    monkeypatch.setattr(mismatched, "choose_partners", before)
    rows = judged(40)
    path = write_rows(tmp_path / "rows.jsonl", rows)
    order += order_of(make_profile(model_folder, path, run={"stage": "kto"}, train=SETTINGS | ONE_MICRO_BATCH))
    steps, oracle = both("kto", method, 4, preference, rows, model_folder, tmp_path)
    if not preference.get("loss_type"):
        divergences = np.array([step.extras["kl"] for step in steps], dtype=float)
        np.testing.assert_allclose(divergences, np.array([one["kl"] for one in oracle]), atol=3e-5)
        assert (max(one["kl"] for one in oracle) > 1e-3) == (method == "full"), "z0 counts"


def both(
    stage: str,
    method: str,
    size: int,
    preference: dict[str, Any],
    rows: Rows,
    model: Path,
    folder: Path,
) -> tuple[list[Step], list[dict[str, float]]]:
    """Our eight steps and TRL's, whose losses and gradients are the same."""
    profile = make_profile(
        model, write_rows(folder / "rows.jsonl", rows), run={"stage": stage},
        adapter={"method": method, **(LORA if method == "lora" else {})}, preference={"beta": 0.3, **preference},
        train=SETTINGS | {"per_device_train_batch_size": size, "gradient_accumulation_steps": 4 // size},
    )  # fmt: skip
    steps = train_run(folder / "run", profile)
    oracle = trl_steps(profile, model, folder / "trl", rows)
    assert len(steps) == len(oracle) == 8
    found, expected = column(steps, "loss"), np.array([entry["loss"] for entry in oracle])
    assert np.ptp(found) > 1e-2, "nothing was learned, so nothing is compared"
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-6)
    np.testing.assert_allclose(column(steps, "grad_norm"), [entry["grad_norm"] for entry in oracle], rtol=1e-4)
    return steps, oracle
