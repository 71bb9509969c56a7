"""The optimizers against those that transformers' Trainer builds: groups, updates, and their state in files."""

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
from bitsandbytes.optim.optimizer import GlobalOptimManager
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Trainer,
    TrainingArguments,
)

from ftui.engine.optim.optimizer import BITS_AND_BYTES, TORCH, allocate_state, check_optimizer, make_optimizer
from ftui.engine.optim.optimizer_state import flatten_state, load, state_bytes, state_of
from ftui.errors import HardwareError
from ftui.profile.sections.optimizers import Optimizer
from ftui.profile.sections.train import TrainSection
from tests.support.refused import refused

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
# bitsandbytes keeps 8-bit moments for weights of 4096 elements or more: some here are, some are not.
WIDE = LlamaConfig(**SMALL | {"vocab_size": 80, "hidden_size": 64, "intermediate_size": 96})
KINDS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in get_args(Optimizer)),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("adagrad", {"lr_decay": 0.1, "eps": 1e-6}),
    ("rmsprop", {"momentum": 0.5, "alpha": 0.9, "eps": 1e-6, "centered": True}),
    ("ademamix", {"beta3": 0.99, "alpha": 3.0, "t_alpha": 4, "t_beta3": 4}),
    ("ademamix_8bit", {"beta3": 0.99, "alpha": 3.0}),
]
RATES = (0.0, 1e-3, 3e-3, 2e-3, 1e-3, 5e-4)


def section(optim: str, args: dict[str, Any]) -> TrainSection:
    return TrainSection.model_validate(
        {
            "optim": optim, "optim_args": args or None, "weight_decay": 0.1, "learning_rate": 3e-3, "adam_beta1": 0.8,
            "adam_beta2": 0.95, "adam_epsilon": 1e-7,
        }
    )  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_manager() -> Iterator[None]:
    """bitsandbytes keeps in a singleton which weights are to be treated otherwise, by their ids."""
    yield
    GlobalOptimManager.get_instance().initialize()  # type: ignore[no-untyped-call]


@pytest.fixture
def model() -> Any:
    torch.manual_seed(3)
    return LlamaForCausalLM(WIDE)


def updates(model: Any, optimizer: torch.optim.Optimizer, steps: range) -> list[torch.Tensor]:
    """The weights after these steps; the gradients and the rate of a step depend on its number alone."""
    for number in steps:
        torch.manual_seed(number)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        for group in optimizer.param_groups:
            group["lr"] = RATES[number]
        optimizer.step()
    return [weight.detach().clone() for weight in model.parameters()]


def same(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def test_every_name_is_transformers_and_has_one_builder() -> None:
    names = set(get_args(Optimizer))
    assert names == TORCH.keys() | BITS_AND_BYTES.keys()
    for name in names:
        TrainingArguments(optim=name, use_cpu=True)


@pytest.mark.parametrize(("optim", "args"), KINDS)
def test_updates_are_those_of_the_trainers_optimizer(
    optim: str, args: dict[str, Any], model: Any, tmp_path: Path
) -> None:
    train, theirs = section(optim, args), copy.deepcopy(model)
    arguments = TrainingArguments(
        str(tmp_path), optim=optim, optim_args=",".join(f"{name}={value}" for name, value in args.items()) or None,
        weight_decay=0.1, learning_rate=3e-3, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-7, use_cpu=True,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Paged optimizers are not supported on CPU")
        oracle = updates(theirs, Trainer(model=theirs, args=arguments).create_optimizer(), range(5))
    optimizer = make_optimizer(model, train)
    allocate_state(optimizer)
    begun = [weight.detach().clone() for weight in model.parameters()]
    found = updates(model, optimizer, range(5))
    assert same(found, oracle)
    assert not any(torch.equal(one, other) for one, other in zip(begun, found, strict=True))
    bits = {value.dtype for state in optimizer.state.values() for value in state.values() if hasattr(value, "dtype")}
    assert (torch.uint8 in bits) == ("8bit" in optim)


@pytest.mark.parametrize(("optim", "args"), KINDS)
def test_allocating_the_state_changes_nothing(optim: str, args: dict[str, Any], model: Any) -> None:
    train, other = section(optim, args), copy.deepcopy(model)
    plain = make_optimizer(model, train)
    begun = [weight.detach().clone() for weight in model.parameters()]
    expected = [updates(model, plain, range(step, step + 1)) for step in range(3)]
    allocated = make_optimizer(other, train)
    allocate_state(allocated)
    size = state_bytes(allocated)
    assert same(list(other.parameters()), begun)
    assert all(weight.grad is None for weight in other.parameters())
    assert {group["lr"] for group in allocated.param_groups} == {train.learning_rate}
    for step in range(3):
        assert same(updates(other, allocated, range(step, step + 1)), expected[step]), f"step {step}"
    assert size == state_bytes(allocated) or "dampening" in args, "all of it was allocated"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("optim", "args"), KINDS)
def test_the_state_comes_back_bit_for_bit(
    optim: str, args: dict[str, Any], dtype: torch.dtype, model: Any, tmp_path: Path
) -> None:
    """Three steps, save, and three more: in the same optimizer, and in a new one that was given the files.

    Moments need not have the type of their weights: Adafactor's are float32 beside bfloat16 ones.
    """
    model, train = model.to(dtype), section(optim, args)
    optimizer = make_optimizer(model, train)
    updates(model, optimizer, range(3))
    tensors, plain = state_of(optimizer)
    save_file(tensors, tmp_path / "optimizer.safetensors")
    (tmp_path / "optimizer.json").write_text(json.dumps(plain))
    other = copy.deepcopy(model)
    whole = updates(model, optimizer, range(3, 6))
    fresh = make_optimizer(other, train)
    files = load_file(tmp_path / "optimizer.safetensors"), json.loads((tmp_path / "optimizer.json").read_text())
    load(fresh, *files)
    again = flatten_state(fresh.state_dict())
    assert again[0].keys() == files[0].keys()
    assert all(torch.equal(again[0][name], files[0][name]) for name in again[0])
    assert json.loads(json.dumps(again[1]["state"])) == files[1]["state"]
    assert same(updates(other, fresh, range(3, 6)), whole)
    assert state_bytes(fresh) == state_bytes(optimizer)


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_8bit"])
def test_a_fork_keeps_the_moments_and_takes_its_own_settings(optim: str, model: Any) -> None:
    train = section(optim, {})
    optimizer = make_optimizer(model, train)
    updates(model, optimizer, range(3))
    state = state_of(optimizer)
    fork = make_optimizer(model, train.model_copy(update={"weight_decay": 0.3, "adam_beta1": 0.7}))
    load(fork, *state)
    assert [(group["weight_decay"], group["betas"]) for group in fork.param_groups] == [
        (0.3, (0.7, 0.95)),
        (0.0, (0.7, 0.95)),
    ]
    assert all(torch.equal(flatten_state(fork.state_dict())[0][name], tensor) for name, tensor in state[0].items())


@pytest.mark.parametrize(("before", "after"), [("sgd", "adamw_torch"), ("paged_adamw_32bit", "adamw_8bit")])
def test_a_fork_to_another_optimizer_begins_with_new_moments(before: str, after: str, model: Any) -> None:
    optimizer = make_optimizer(model, section(before, {}))
    updates(model, optimizer, range(2))
    tensors, plain = state_of(optimizer)
    other = copy.deepcopy(model)
    fork = make_optimizer(model, section(after, {}))
    load(fork, tensors, json.loads(json.dumps(plain)))
    found = updates(model, fork, range(1, 3))
    assert same(found, updates(other, make_optimizer(other, section(after, {})), range(1, 3)))


def test_the_state_of_other_weights_is_refused(model: Any) -> None:
    train = section("adamw_8bit", {})
    optimizer = make_optimizer(model, train)
    updates(model, optimizer, range(1))
    tensors, plain = state_of(optimizer)
    narrow = LlamaForCausalLM(LlamaConfig(**SMALL))
    with pytest.raises(ValueError, match="over other weights"):
        load(make_optimizer(narrow, train), tensors, plain)


def test_paged_moments_have_pages_where_there_is_a_gpu() -> None:
    """Weights that are nowhere stand for weights on a GPU."""
    model = LlamaForCausalLM(WIDE)
    assert not cast(Any, make_optimizer(model, section("paged_adamw_8bit", {}))).is_paged
    elsewhere: Any = make_optimizer(nn.Module.to(model, "meta"), section("paged_adamw_8bit", {}))
    assert (elsewhere.is_paged, elsewhere.args.optim_bits) == (True, 8)
    assert not cast(Any, make_optimizer(model, section("adamw_8bit", {}))).is_paged


def test_where_bitsandbytes_has_no_optimizer_it_says_what_has() -> None:
    check_optimizer("adamw_8bit", torch.device("cuda"))
    check_optimizer("adamw_torch", torch.device("mps"))
    with pytest.raises(HardwareError, match="none for mps") as caught:
        check_optimizer("paged_adamw_8bit", torch.device("mps"))
    assert "adamw_torch" in caught.value.hint


@pytest.mark.parametrize(
    ("optim", "args", "complaint"),
    [
        ("adamw_torch", {"momentum": 0.9}, 'momentum is not for optim = "adamw_torch", which takes nothing'),
        ("adagrad", {"momentum": 0.9}, 'for optim = "adagrad", which takes lr_decay, eps'),
        ("sgd", {"nesterov": True}, "nesterov needs a momentum"),
        ("sgd", {"momentum": 0.9, "nesterov": True, "dampening": 0.1}, "and no dampening"),
        ("sgd", {"dampening": 0.1}, "dampening needs a momentum"),
        ("rmsprop", {"alpha": 1.5}, "alpha of rmsprop is below 1, not 1.5"),
    ],
)
def test_details_that_do_not_fit_are_refused(optim: str, args: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(train=section(optim, args))


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
