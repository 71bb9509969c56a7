"""Checkpointed activations, noise, compiled layers, TF32 and Liger: each does what it says, and no more."""

import copy
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch._dynamo.utils import counters
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.integrations import liger

from ftui.engine.models import performance
from ftui.engine.models.methods import apply_method
from ftui.engine.models.starting_point import StartingPoint
from ftui.engine.objectives.loss import Batch
from ftui.engine.system import device
from ftui.engine.system.device import Hardware, settle_torch
from ftui.errors import HardwareError, ModelError
from ftui.profile.sections.train import TrainSection
from ftui.runs.events import Step
from tests.support.losses import summed_loss
from tests.support.refused import refused
from tests.support.tiny import chats, column, make_profile, train_run, write_rows

NUM_LAYERS = 4
ALPHA = 5.0
LLAMA = LlamaConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=NUM_LAYERS, num_attention_heads=2,
    num_key_value_heads=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def hardware(kind: str = "cpu") -> Hardware:
    return Hardware(torch.device(kind), "fp32", 1, "this machine", None)


def section(**keys: Any) -> TrainSection:
    return TrainSection.model_validate(keys)


def make_model(*, adapter: bool = False) -> Any:
    torch.manual_seed(1)
    base = LlamaForCausalLM(LLAMA)
    if not adapter:
        return base
    return get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))


def batch(rows: int = 2, length: int = 9) -> Batch:
    torch.manual_seed(rows * length)
    targets = torch.randint(3, 40, (rows * length,))
    return Batch(
        torch.randint(3, 40, (rows, length)), None, torch.arange(rows * length), targets, {"tokens": rows * length}
    )


def gradients(model: Any, of: Batch) -> list[torch.Tensor]:
    model.zero_grad()
    model.train()
    (summed_loss(model, of) / of.num_tokens).backward()
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


@pytest.mark.parametrize(
    ("details", "twice"),
    [
        (None, NUM_LAYERS),
        ({"every_n_layers": 2}, NUM_LAYERS // 2),
        ({"num_layers": 1}, 1),
        ({"num_layers": 9}, NUM_LAYERS),
    ],
)
def test_forgotten_activations_are_made_again_and_gradients_are_the_same(
    details: dict[str, int] | None, twice: int
) -> None:
    model = make_model()
    expected = gradients(model, batch())
    performance.prepare_base(model, section(activation_checkpointing=True, activation_checkpointing_kwargs=details))
    calls: list[int] = []
    for number, layer in enumerate(model.model.layers):
        layer.mlp.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    found = gradients(model, batch())
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert sorted(calls.count(number) for number in range(NUM_LAYERS)) == [1] * (NUM_LAYERS - twice) + [2] * twice


LAST = {"layers_to_transform": (2, 3), "target_modules": ("q_proj", "up_proj")}


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(
    ("adapter", "first"),
    [({}, 0), (LAST, 2), (LAST | {"use_fused_lora": False}, 2), ({"method": "freeze", "trainable_layers": 1}, 3)],
)
def test_no_gradient_flows_below_the_first_trained_layer(
    adapter: dict[str, Any], first: int, forgets: bool, tmp_path: Path
) -> None:
    """Nor is anything computed again there."""
    train = {"activation_checkpointing": forgets}
    profile = make_profile(tmp_path, tmp_path, adapter={"method": "lora", "r": 2} | adapter, train=train)
    model = make_model()
    performance.prepare_base(model, profile.train)
    trained = apply_method(model, profile, hardware(), StartingPoint(tmp_path, None, None, ()))
    flows: dict[int, bool] = {}
    calls: list[int] = []
    for number, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda _, given, n=number: flows.__setitem__(n, given[0].requires_grad))
        layer.mlp.register_forward_pre_hook(lambda _, given, n=number: calls.append(n))
    gradients(trained, batch())
    assert flows == {number: number > first for number in range(NUM_LAYERS)}
    assert {number: calls.count(number) for number in flows} == {n: 1 + (forgets and n >= first) for n in flows}


def test_details_of_checkpointing_need_checkpointing() -> None:
    given = section(activation_checkpointing_kwargs={"every_n_layers": 2})
    assert "needs activation_checkpointing = true" in refused(train=given)


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_noise_is_within_its_bound_while_training_and_absent_otherwise(adapter: bool) -> None:
    model, ids = make_model(adapter=adapter), batch().input_ids
    clean = model.get_input_embeddings()(ids)
    performance.prepare_trained(model, section(neftune_noise_alpha=ALPHA))
    model.train()
    torch.manual_seed(4)
    noisy = model.get_input_embeddings()(ids)
    bound = ALPHA / math.sqrt(ids.shape[1] * LLAMA.hidden_size)  # alpha / sqrt(length x width), the paper's
    assert 0.9 * bound < (noisy - clean).abs().max() <= bound * (1 + 1e-6)
    torch.manual_seed(4)
    assert torch.equal(model.get_input_embeddings()(ids), noisy)
    model.eval()
    assert torch.equal(model.get_input_embeddings()(ids), clean)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo asks for it
def test_compiled_layers_train_the_same_under_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a backend that runs torch's own kernels: to write C++ for them takes half a minute."""
    monkeypatch.setattr(performance, "BACKEND", "eager")
    torch._dynamo.reset()
    train, model = section(torch_compile=True), make_model(adapter=True)
    plain = copy.deepcopy(model)
    performance.prepare_trained(model, train)
    assert list(model.state_dict()) == list(plain.state_dict())
    before = counters["stats"]["unique_graphs"]
    for length in (9, 14, 5):
        pairs = zip(gradients(model, batch(length=length)), gradients(plain, batch(length=length)), strict=True)
        assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in pairs)
    num_graphs = counters["stats"]["unique_graphs"] - before
    assert num_graphs == 2, "whatever the lengths: one for the first layer, whose inputs have no gradient, one for all"
    model.eval()
    with torch.no_grad(), performance.uncompiled(train):
        summed_loss(model, batch())
    assert counters["stats"]["unique_graphs"] - before == num_graphs, "an evaluation compiles nothing"


def test_what_this_machine_cannot_do_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    performance.check_machine(section(torch_compile=True), hardware())
    with pytest.raises(HardwareError, match="tf32 needs an NVIDIA GPU since Ampere, and this run"):
        performance.check_machine(section(tf32=True), hardware())
    with pytest.raises(HardwareError, match="run on a GPU only"):
        performance.check_machine(section(use_liger_kernel=True), hardware())
    with pytest.raises(HardwareError, match="needs the package liger-kernel"):
        performance.check_machine(section(use_liger_kernel=True), hardware("cuda"))
    elsewhere = replace(hardware("cuda"), is_here=False)
    performance.check_machine(section(use_liger_kernel=True), elsewhere)
    with pytest.raises(HardwareError, match="bitsandbytes, which has none for mps"):
        performance.check_machine(section(optim="adamw_8bit"), hardware("mps"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(HardwareError, match="needs a C\\+\\+ compiler"):
        performance.check_machine(section(torch_compile=True), hardware())


def test_tf32_is_turned_on_where_there_is_such_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[bool] = []
    monkeypatch.setattr(device, "enable_tf32", turned.append)
    profile = make_profile(tmp_path, tmp_path)
    settle_torch(profile, hardware("cuda"))
    assert turned == []
    train = profile.train.model_copy(update={"tf32": True})
    performance.check_machine(train, replace(hardware("cuda"), capability=80))
    settle_torch(profile.model_copy(update={"train": train}), hardware("cuda"))
    assert turned == [True]
    with pytest.raises(HardwareError, match="since Ampere"):
        performance.check_machine(train, replace(hardware("cuda"), capability=75))


def test_liger_gets_the_model_but_not_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package needs a GPU even to be imported, so one with its two names stands in for it."""
    package, patches, given = ModuleType("liger_kernel.transformers"), ModuleType("monkey_patch"), []
    package._apply_liger_kernel_to_instance = lambda model, **wishes: given.append((model, wishes))  # type: ignore[attr-defined]
    patches.MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": None}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers.monkey_patch", patches)
    for module in (liger, performance):
        monkeypatch.setattr(module, "is_liger_kernel_available", lambda: True)
    train, llama = section(use_liger_kernel=True), LlamaForCausalLM(LLAMA)
    performance.check_machine(train, hardware("cuda"))
    performance.prepare_base(llama, train)
    assert given == [(llama, {"cross_entropy": False, "fused_linear_cross_entropy": False})]
    other = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2))
    with pytest.raises(ModelError, match="no kernels for models of type gpt2"):
        performance.check_layers(other, train)


RESUMED: list[dict[str, Any]] = [
    {"neftune_noise_alpha": ALPHA, "activation_checkpointing": True, "optim": "adamw_8bit"},
    {"optim": "adafactor", "lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 2}},
    {"optim": "paged_lion_8bit", "label_smoothing_factor": 0.1, "data_seed": 9},
    {
        "optim": "sgd", "optim_args": {"momentum": 0.9, "dampening": 0.2}, "learning_rate": 0.1,
        "lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0, "threshold": 0.9},
    },
]  # fmt: skip


@pytest.mark.parametrize("keys", RESUMED, ids=lambda keys: keys["optim"])
def test_each_key_counts_and_a_resume_is_the_same(keys: dict[str, Any], model_folder: Path, tmp_path: Path) -> None:
    """The whole engine: six steps, and the last three again from the checkpoint in between."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(40))
    train = {"max_steps": 6, "warmup_steps": 1, "learning_rate": 3e-3, "precision": "fp32", "seed": 5}

    def steps(name: str, **more: Any) -> list[Step]:
        profile = make_profile(
            model_folder, rows, train=train | more, checkpoint={"save_steps": 3, "save_minutes": None},
            data={"train": str(rows), "eval_num_rows": 4}, eval={"eval_strategy": "steps", "eval_steps": 2},
        )  # fmt: skip
        return train_run(tmp_path / name, profile)

    whole = steps("whole", **keys)
    checkpoint = tmp_path / "whole" / "checkpoints" / "checkpoint-3"
    shutil.copytree(checkpoint, tmp_path / "again" / "checkpoints" / checkpoint.name)
    again = steps("again", **keys)
    for name in ("loss", "learning_rate", "grad_norm"):
        assert np.array_equal(column(again, name), column(whole[3:], name))
    if keys.get("lr_scheduler_type") == "reduce_lr_on_plateau":
        rates = column(whole, "learning_rate")
        np.testing.assert_allclose(rates, [0.0, 0.1, 0.1, 0.1, 0.01, 0.01])  # the evaluation of step 4 was no better
    for name in keys.keys() - {"activation_checkpointing", "optim_args", "lr_scheduler_kwargs"}:
        gone = {name, {"optim": "optim_args", "lr_scheduler_type": "lr_scheduler_kwargs"}.get(name)}
        without = {other: value for other, value in keys.items() if other not in gone}
        other = steps(f"without-{name}", **without)
        assert not np.array_equal(column(other, "loss"), column(whole, "loss")), f"{name} changes nothing"


def test_a_run_that_asks_too_much_ends_before_it_reads_a_row(model_folder: Path, tmp_path: Path) -> None:
    profile = make_profile(model_folder, tmp_path / "absent.jsonl", train={"use_liger_kernel": True})
    with pytest.raises(HardwareError, match="use_liger_kernel"):
        train_run(tmp_path / "run", profile)
