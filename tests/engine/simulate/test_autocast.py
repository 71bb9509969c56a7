"""Autocast on `meta` against torch's own on the CPU: the same operations, with results of the same shapes and types."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ftui.engine.models.model_parts import LossModule
from ftui.engine.objectives import make_objective
from ftui.engine.objectives.loss import Batch
from ftui.engine.simulate.kernels import kernels_for
from ftui.engine.simulate.meta_model import MetaModel, card_hardware, make_meta_model
from ftui.engine.simulate.meta_ops import assume_full_rows
from ftui.engine.simulate.meta_step import AMOUNTS, loss_module
from ftui.engine.simulate.tracker import READ_SCALAR
from ftui.engine.system.device import Hardware
from ftui.engine.training.forward_backward import backpropagate
from ftui.profile.schema import Profile
from tests.support.simulated import CPU, config, profile

ROWS, LENGTH = 2, 32


class Results(TorchDispatchMode):
    """Counts (shape, type) of every tensor that an operation makes: what memory is made of."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is READ_SCALAR and args[0].is_meta:
            return True if args[0].dtype == torch.bool else 1
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            is_new = isinstance(tensor, torch.Tensor) and not any(tensor is given for given in args)
            if is_new and not func.is_view and tensor.numel() > 2 * LENGTH * ROWS:
                self.made[tuple(tensor.shape), tensor.dtype] += 1
        return result


def made(module: LossModule, device: str) -> Counter[tuple[Any, ...]]:
    def ids(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.int64, device=device)

    batch = Batch(ids(ROWS, LENGTH), None, ids(ROWS * (LENGTH - 1)), ids(ROWS * (LENGTH - 1)), AMOUNTS)
    with Results() as results:
        backpropagate(module, batch, AMOUNTS, 1.0)
    found: Counter[tuple[Any, ...]] = results.made
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_same_tensors_as_torch_makes(kind: str, method: str, checkpointing: bool) -> None:
    chosen = profile(
        adapter={"method": method}, train={"precision": "bf16", "activation_checkpointing": checkpointing}
    )  # fmt: skip
    simulated = make_meta_model(chosen, config(kind), card_hardware(chosen, CPU))
    with kernels_for(CPU).chosen(), assume_full_rows(LENGTH):
        on_meta = made(loss_module(simulated, chosen), "meta")
    on_cpu = made(real(chosen, kind), "cpu")
    assert not on_meta - on_cpu, on_meta - on_cpu
    assert not on_cpu - on_meta, on_cpu - on_meta


def real(chosen: Profile, kind: str) -> LossModule:
    """The same model with weights, under torch's own autocast."""
    simulated: MetaModel = make_meta_model(chosen, config(kind), card_hardware(chosen, CPU))
    model = simulated.model.to_empty(device="cpu")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    hardware = Hardware(torch.device("cpu"), "bf16", 1, "", None)
    return LossModule(model, make_objective(chosen), hardware)
