"""The learning rate's curve and the groups of the optimizer, against transformers' own."""

from typing import Any, cast

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    Qwen2Config,
    Trainer,
    TrainingArguments,
    get_scheduler,
)

from ftui.engine.optim import learning_rate_curve, make_optimizer, warmup_steps
from ftui.profile.train import TrainSection

MAX_STEPS = 37
SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**SMALL),
    "qwen2": Qwen2Config(**SMALL),  # has biases
    "gemma2": Gemma2Config(**SMALL, head_dim=8),
    "gpt2": GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2),  # LayerNorm
}


@pytest.mark.parametrize("warmup", [0, 0.1, 0.5, 1, 5, MAX_STEPS])
@pytest.mark.parametrize("kind", ["linear", "cosine", "constant_with_warmup"])
def test_the_curve_is_that_of_transformers(kind: str, warmup: float) -> None:
    """Step by step as the Trainer takes it: the rate is read, the optimizer steps, the schedule steps."""
    train = TrainSection(lr_scheduler_type=kind, warmup_steps=float(warmup), learning_rate=3e-4)  # type: ignore[arg-type]
    curve = learning_rate_curve(train, MAX_STEPS)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=3e-4)
    num_warmup = TrainingArguments(warmup_steps=warmup, use_cpu=True).get_warmup_steps(MAX_STEPS)
    schedule = get_scheduler(kind, optimizer, num_warmup_steps=num_warmup, num_training_steps=MAX_STEPS)
    for step in range(1, MAX_STEPS + 1):
        assert curve(step) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12), f"step {step}"
        optimizer.step()
        schedule.step()


def test_constant_without_warmup_never_moves() -> None:
    train = TrainSection(lr_scheduler_type="constant", warmup_steps=0.0, learning_rate=3e-4)
    assert {learning_rate_curve(train, MAX_STEPS)(step) for step in range(1, MAX_STEPS + 1)} == {3e-4}


def test_constant_warms_up_when_asked() -> None:
    train = TrainSection(lr_scheduler_type="constant", warmup_steps=4.0, learning_rate=1.0)
    assert [learning_rate_curve(train, MAX_STEPS)(step) for step in range(1, 7)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_curve_remembers_nothing() -> None:
    """Asked backwards it says the same: a resumed run needs no schedule's state."""
    curve = learning_rate_curve(TrainSection(), MAX_STEPS)
    steps = range(1, MAX_STEPS + 1)
    assert [curve(step) for step in steps] == [curve(step) for step in reversed(steps)][::-1]


@pytest.mark.parametrize("warmup", [0, 0.01, 0.03, 0.5, 0.999, 1, 2, 100])
def test_warmup_is_a_share_or_a_number_of_steps(warmup: float) -> None:
    theirs = TrainingArguments(warmup_steps=warmup, use_cpu=True)
    for max_steps in (1, 10, 33, 1000):
        assert warmup_steps(TrainSection(warmup_steps=float(warmup)), max_steps) == theirs.get_warmup_steps(max_steps)


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_weights_that_decay_are_those_of_the_trainer(kind: str, adapter: bool) -> None:
    model: Any = AutoModelForCausalLM.from_config(CONFIGS[kind])
    if adapter:
        config = LoraConfig(r=2, target_modules="all-linear", fan_in_fan_out=kind == "gpt2")
        model = get_peft_model(model, config)
    train = TrainSection(weight_decay=0.1, learning_rate=3e-4, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-7)
    groups = make_optimizer(model, train).param_groups
    trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    decayed = {id(weight) for group in groups if group["weight_decay"] for weight in group["params"]}
    undecayed = {id(weight) for group in groups if not group["weight_decay"] for weight in group["params"]}
    expected = set(Trainer.get_decay_parameter_names(cast(Any, None), model)) & trainable.keys()
    assert {name for name, weight in trainable.items() if id(weight) in decayed} == expected
    assert decayed | undecayed == {id(weight) for weight in trainable.values()}
    assert not decayed & undecayed
    assert expected
    assert adapter or undecayed
    for group in groups:
        assert group["weight_decay"] in (0.0, 0.1)
        assert (group["lr"], group["betas"], group["eps"]) == (3e-4, (0.8, 0.95), 1e-7)
