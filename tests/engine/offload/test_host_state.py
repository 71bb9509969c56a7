"""An optimizer's state in host memory: updates, checkpoints and resumed updates of one without, to the last bit."""

from typing import Any

import pytest
import torch
from torch import nn

from ftui.engine.offload import host_state
from ftui.engine.optim.optimizer import allocate_state, make_optimizer
from ftui.engine.optim.optimizer_state import load, state_of
from ftui.profile.sections.train import TrainSection

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw_torch": {}, "adamw_torch_fused": {}, "adafactor": {}, "adagrad": {},
    "sgd": {"optim_args": {"momentum": 0.9, "nesterov": True}},
    "rmsprop": {"optim_args": {"momentum": 0.9, "centered": True}},
}  # fmt: skip


def made(optim: str, *, on_host: bool, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 1)).to(dtype)
    section = TrainSection.model_validate({"optim": optim, "weight_decay": 0.1, **OPTIMIZERS[optim]})
    optimizer = make_optimizer(model, section)
    if on_host:
        host_state.keep_state_on_host(optimizer)
    return model, optimizer


def update(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(5, 8, generator=torch.Generator().manual_seed(step)).to(next(model.parameters()).dtype)
        model(inputs).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def same_state(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    (ours, our_rest), (theirs, their_rest) = state_of(one), state_of(other)
    assert ours.keys() == theirs.keys() and our_rest == their_rest
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_the_host_changes_neither_updates_nor_what_a_checkpoint_holds(
    optim: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_state, "SLICE_BYTES", 200)  # a weight or two at once
    (plain, expected), (model, optimizer) = (made(optim, on_host=on, dtype=dtype) for on in (False, True))
    for one in (expected, optimizer):
        allocate_state(one)
    same_state(optimizer, expected)
    update(plain, expected, range(2))
    update(model, optimizer, range(2))
    same_state(optimizer, expected)
    tensors, rest = state_of(optimizer)
    saved = {name: tensor.clone() for name, tensor in tensors.items()}
    resumed, fresh = made(optim, on_host=True, dtype=dtype)
    resumed.load_state_dict(model.state_dict())
    load(fresh, saved, rest)
    same_state(fresh, expected)
    update(plain, expected, range(2, 4))
    update(resumed, fresh, range(2, 4))
    same_state(fresh, expected)
    for ours, theirs in zip(resumed.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_state_lies_still_on_the_host_and_is_there_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_state, "SLICE_BYTES", 200)
    model, optimizer = made("adamw_torch", on_host=True)
    updated: list[int] = []
    optimizer.register_step_pre_hook(lambda one, *_: updated.append(sum(len(g["params"]) for g in one.param_groups)))
    update(model, optimizer, range(1))
    places = {name: tensor.data_ptr() for name, tensor in state_of(optimizer)[0].items()}
    update(model, optimizer, range(1, 2))
    assert {name: tensor.data_ptr() for name, tensor in state_of(optimizer)[0].items()} == places
    assert sum(updated) == 2 * len([*model.parameters()]) and len(updated) > 4
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 4]
