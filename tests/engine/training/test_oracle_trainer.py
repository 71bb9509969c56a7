"""Our loop against transformers' Trainer and TRL's SFTTrainer: the same rows, weights and settings, the same 20 steps.

Ours is the whole real engine, read through its metrics file. Theirs get their rows in the order of our plan. Losses
must agree to 1e-4, lengths of gradients to 1e-3 (relative), learning rates exactly; and each of four classic mistakes,
made in our loop on purpose, must move the losses by more than 1e-3, or agreement would prove nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from ftui.engine.objectives.loss import Batch
from ftui.engine.training import forward_backward as passes
from ftui.engine.training import prefetch
from ftui.engine.training.collate import collate_examples
from ftui.engine.training.prepare import TrainingData, prepare
from ftui.profile.schema import Profile
from ftui.profile.sections.schedulers import explicit_values
from ftui.system.user_folders import cache_folder
from tests.support.tiny import (
    MARKED,
    Rows,
    chats,
    column,
    completions,
    make_profile,
    make_tokenizer,
    train_run,
    write_rows,
)

SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 3,
    "weight_decay": 0.1,
    "max_grad_norm": 1.0,
    "seed": 5,
}
RATES = {"full": 1e-2, "lora": 3e-2}
LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0}


@dataclass(frozen=True)
class Curves:
    """What a training wrote down at each step. `norms` are those before clipping."""

    losses: np.ndarray
    rates: np.ndarray
    norms: np.ndarray

    def distance(self, other: "Curves") -> float:
        return float(np.abs(self.losses - other.losses).max())


def ours(profile: Profile, folder: Path) -> Curves:
    steps = train_run(folder, profile)
    return Curves(column(steps, "loss"), column(steps, "learning_rate"), column(steps, "grad_norm"))


def theirs(trainer: Any) -> Curves:
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return Curves(*(np.array([step[name] for step in steps]) for name in ("loss", "learning_rate", "grad_norm")))


def assert_agree(curves: Curves, oracle: Curves) -> None:
    assert len(oracle.losses) == 20
    assert oracle.losses[:3].mean() - oracle.losses[-3:].mean() > 0.3, "nothing was learned, so nothing is compared"
    assert (oracle.norms > 1.0).any(), "no gradient was ever clipped, so clipping is not compared"
    np.testing.assert_allclose(curves.losses, oracle.losses, rtol=0, atol=1e-4)
    np.testing.assert_allclose(curves.norms, oracle.norms, rtol=1e-3)
    np.testing.assert_allclose(curves.rates, oracle.rates, rtol=1e-12)


def profile_of(model: Path, rows: Path, method: str, **train: Any) -> Profile:
    settings = SETTINGS | {"precision": "fp32", "learning_rate": RATES[method], "num_train_epochs": 2}
    return make_profile(model, rows, adapter={"method": method, **LORA}, train=settings | train)


def prepared_rows(profile: Profile) -> tuple[TrainingData, list[int]]:
    """The prepared data of a run, and its rows' numbers in the order of the plan (one epoch where epochs are alike)."""
    prepared = prepare(profile, cache_folder(Path()), lambda detail: None)
    plan = prepared.plan
    repeats = profile.train.train_sampling_strategy == "sequential"
    steps = range(1, (plan.steps_per_epoch if repeats else plan.max_steps) + 1)
    return prepared, [index for step in steps for (index,) in plan.step(step)]


def arguments(profile: Profile, folder: Path) -> dict[str, Any]:
    train = profile.train
    repeats = train.train_sampling_strategy == "sequential"
    return SETTINGS | {
        "optim": train.optim, "lr_scheduler_type": train.lr_scheduler_type,
        "lr_scheduler_kwargs": explicit_values(train.lr_scheduler_kwargs),
        "output_dir": str(folder), "learning_rate": train.learning_rate,
        "num_train_epochs": 2 if repeats else 1, "train_sampling_strategy": "sequential", "logging_steps": 1,
        "save_strategy": "no", "report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }  # fmt: skip


def model_of(folder: Path, method: str) -> Any:
    torch.manual_seed(SETTINGS["seed"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if method == "full":
        return model
    return get_peft_model(model, LoraConfig(**LORA, target_modules="all-linear", task_type="CAUSAL_LM"))  # type: ignore[arg-type]


def trainer_curves(profile: Profile, model: Path, folder: Path) -> Curves:
    prepared, order = prepared_rows(profile)
    items = []
    for index in order:
        sequence = prepared.train.sequences[index]
        labels = np.where(sequence.targets, sequence.input_ids, -100)
        items.append({"input_ids": sequence.input_ids.tolist(), "labels": labels.tolist()})
    trainer = Trainer(
        model=model_of(model, profile.adapter.method),
        args=TrainingArguments(**arguments(profile, folder)),
        train_dataset=Dataset.from_list(items),
        data_collator=DataCollatorForSeq2Seq(prepared.tokenizer),
    )
    return theirs(trainer)


def trl_curves(profile: Profile, model: Path, folder: Path, rows: Rows, template: str, **options: Any) -> Curves:
    from trl.trainer.sft_config import SFTConfig  # 2 s
    from trl.trainer.sft_trainer import SFTTrainer

    prepared, order = prepared_rows(profile)
    assert len(prepared.train.sequences) == len(rows), "one sequence a row, or the order would mean nothing"
    settings = arguments(profile, folder) | {"max_length": 256, "activation_checkpointing": False, **options}
    trainer = SFTTrainer(
        model=model_of(model, profile.adapter.method),
        args=SFTConfig(**settings),
        train_dataset=Dataset.from_list([rows[index] for index in order]),
        processing_class=make_tokenizer(template),
    )
    return theirs(trainer)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize(("strategy", "num_rows"), [("random", 80), ("sequential", 75)])
def test_losses_are_those_of_the_trainer(
    method: str, strategy: str, num_rows: int, model_folder: Path, tmp_path: Path
) -> None:
    """75 rows end each epoch with a step of three rows in one micro-batch."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(num_rows))
    profile = profile_of(model_folder, rows, method, train_sampling_strategy=strategy)
    curves = ours(profile, tmp_path / "run")
    oracle = trainer_curves(profile, model_folder, tmp_path / "trainer")
    assert_agree(curves, oracle)


@pytest.mark.parametrize(
    ("optim", "curve", "details"),
    [("adafactor", "cosine_with_min_lr", {"min_lr_rate": 0.1}), ("adamw_8bit", "polynomial", {"power": 2.0})],
)
def test_losses_with_another_optimizer_and_curve(
    optim: str, curve: str, details: dict[str, float], model_folder: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(80))
    wishes = {"optim": optim, "lr_scheduler_type": curve, "lr_scheduler_kwargs": details}
    profile = profile_of(model_folder, rows, "full", **wishes)
    curves = ours(profile, tmp_path / "run")
    assert_agree(curves, trainer_curves(profile, model_folder, tmp_path / "trainer"))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_losses_are_those_of_trl_on_conversations(method: str, model_folder: Path, tmp_path: Path) -> None:
    """TRL finds the answers by `{% generation %}`; our tokenizer has a template without it, so we find them ourselves.

    Both templates write a newline after the token that ends a turn. It is outside of `{% generation %}`, as in all
    templates that TRL ships, and we leave it out by our own rule: so both learn the same tokens.
    """
    rows = chats(80)
    profile = profile_of(model_folder, write_rows(tmp_path / "rows.jsonl", rows), method)
    curves = ours(profile, tmp_path / "run")
    oracle = trl_curves(profile, model_folder, tmp_path / "trl", rows, MARKED, assistant_only_loss=True)
    assert_agree(curves, oracle)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_losses_are_those_of_trl_on_completions(method: str, model_folder: Path, tmp_path: Path) -> None:
    rows = completions(80)
    profile = profile_of(model_folder, write_rows(tmp_path / "rows.jsonl", rows), method)
    curves = ours(profile, tmp_path / "run")
    oracle = trl_curves(profile, model_folder, tmp_path / "trl", rows, MARKED, completion_only_loss=True)
    assert_agree(curves, oracle)


Mistake = Callable[[pytest.MonkeyPatch], None]


def mean_of_means(patch: pytest.MonkeyPatch) -> None:
    """Each micro-batch counts the same, however few targets it has."""

    def forward_backward(
        self: passes.ForwardBackward, batches: prefetch.StepBatches, scale: float, divergence: float
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]:
        total = torch.zeros(())
        for batch in batches.batches:
            mean = self.parts.module(batch).sums["targets"] / len(batch.target_ids) / len(batches.batches)
            mean.backward()
            total += mean.detach()
        return {"targets": total * batches.num_target_tokens}, {}, []

    patch.setattr(passes.ForwardBackward, "_forward_backward", forward_backward)


def clip_each_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """The gradient is cut after every micro-batch, not once when it is whole."""

    def forward_backward(
        self: passes.ForwardBackward, batches: prefetch.StepBatches, scale: float, divergence: float
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]:
        total = torch.zeros(())
        for batch in batches.batches:
            loss = self.parts.module(batch).sums["targets"]
            (loss / batches.num_target_tokens).backward()
            torch.nn.utils.clip_grad_norm_(self.parts.model.parameters(), 1.0)
            total += loss.detach()
        return {"targets": total}, {}, []

    patch.setattr(passes.ForwardBackward, "_forward_backward", forward_backward)


def shift_once_more(patch: pytest.MonkeyPatch) -> None:
    """Each position learns the token after the next."""

    def shifted(*given: Any) -> Batch:
        batch = collate_examples(*given)
        return Batch(
            batch.input_ids, batch.position_ids, (batch.predictors - 1).clamp(min=0), batch.target_ids, batch.amounts
        )

    patch.setattr(prefetch, "collate_examples", shifted)


def mask_the_end(patch: pytest.MonkeyPatch) -> None:
    """Nobody learns to stop."""
    eos = make_tokenizer().eos_token_id

    def masked(*given: Any) -> Batch:
        batch = collate_examples(*given)
        kept = batch.target_ids != eos
        return Batch(batch.input_ids, batch.position_ids, batch.predictors[kept], batch.target_ids[kept], batch.amounts)

    patch.setattr(prefetch, "collate_examples", masked)


@pytest.fixture(scope="module")
def known_good(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, Curves]:
    folder = tmp_path_factory.mktemp("oracle")
    made = profile_of(model_folder, write_rows(folder / "rows.jsonl", chats(80)), "full")
    profile = made.model_copy(update={"log": made.log.model_copy(update={"row_losses": False})})  # mistakes have none
    return profile, trainer_curves(profile, model_folder, folder / "trainer")


@pytest.mark.parametrize("mistake", [mean_of_means, clip_each_micro_batch, shift_once_more, mask_the_end])
def test_the_oracle_sees_a_mistake(
    mistake: Mistake, known_good: tuple[Profile, Curves], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, oracle = known_good
    mistake(monkeypatch)
    wrong = ours(profile, tmp_path / "run")
    assert wrong.distance(oracle) > 1e-3
