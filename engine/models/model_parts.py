"""The model under training with what moves it: the module that computes the loss, the optimizer and the device."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ..distributed.sharded_base import ShardedBase
from ..objectives import Loss, Objective
from ..objectives.loss import RowLayout, under_adapter
from ..offload.reference_weights import ReferenceWeights
from ..system.device import Hardware


class LossModule(nn.Module):
    """The one module that accelerate places and wraps: a micro-batch in, its `Loss` out.

    It casts by itself: accelerate's bf16 returns float32 logits, and its fp16 refuses a CPU.
    """

    def __init__(self, model: nn.Module, objective: Objective, hardware: Hardware) -> None:
        super().__init__()
        self.model = model
        self._objective = objective
        self._hardware = hardware
        self._keeps_casts = not any(isinstance(weight, DTensor) for weight in model.parameters())

    def forward(self, batch: Any) -> Loss:
        """The loss of a micro-batch (a `Batch`) in the hardware's precision."""
        with autocast(self._hardware, keeps_casts=self._keeps_casts):
            return self._objective.loss(self.model, batch)


def autocast(hardware: Hardware, *, keeps_casts: bool) -> torch.autocast:
    """A block whose heavy arithmetic is done in the hardware's precision.

    `keeps_casts`: a weight is cast once for the whole block, not in each use. Of a model whose layers are gathered one
    at a time that would be all of them.
    """
    low = hardware.precision != "fp32"
    dtype = hardware.compute_dtype if low else None
    return torch.autocast(hardware.device.type, dtype=dtype, enabled=low, cache_enabled=keeps_casts)


@dataclass(frozen=True)
class ModelParts:
    """The model (with its adapter, if it has one), the wrapped LossModule around it with its objective, its optimizer,
    and the device.

    `layout`: how the rows of a micro-batch go through it (engine/models/joined_rows.py). `reference`: the trained
    weights as the run began, where the model is held to itself by them.
    """

    model: Any
    module: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    hardware: Hardware
    layout: RowLayout = RowLayout.PADDED
    reference: ReferenceWeights | None = None

    @property
    def attention(self) -> str:
        """Kernel and layout in words: the last bits of every result depend on them."""
        kernel = str(self.model.config._attn_implementation)
        return kernel if self.layout is RowLayout.PADDED else f"{kernel}, {self.layout.value}"

    @property
    def base(self) -> ShardedBase | None:
        """What the ranks do together for a base of which each has a part; `None` where each has all of it."""
        return getattr(under_adapter(self.model), "sharded_base", None)

    def autocast(self) -> torch.autocast:
        """`autocast` for passes of the model that are not those of `module`."""
        return autocast(self.hardware, keeps_casts=self.base is None)

    @property
    def device(self) -> torch.device:
        """The device that the model trains on."""
        return self.hardware.device
