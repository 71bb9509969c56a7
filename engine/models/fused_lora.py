"""A LoRA layer as one autograd node: the base's product and both of the adapter's, with no scaling and no sum between.

PEFT's own forward makes of them about ten operations. Under autocast it casts the layer's input to float32 and back, a
copy for each layer that reads it, and each copy is kept for the backward pass; fused, all of them keep the one tensor
that they read. On disk nothing changes: the modules and the names of their weights stay PEFT's.
"""

from functools import partial
from typing import Any, cast

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..system.device import Hardware
from .quantization import dense_weight, is_dense_or_4bit


def fuse_adapters(model: nn.Module, hardware: Hardware) -> int:
    """Let every layer that `can_fuse` allows compute as one node, in the hardware's precision; how many those are."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, LoraLayer) and can_fuse(module)]
    for layer in layers:
        layer.forward = partial(_forward, layer, layer.forward, hardware)
    return len(layers)


def can_fuse(layer: LoraLayer) -> bool:
    """Whether a layer is a frozen linear one with a single plain adapter.

    Dropout, DoRA, biases, embeddings, GPT-2's Conv1D and a base in 8 bits are computed by PEFT.
    """
    base = layer.get_base_layer()
    return (
        is_dense_or_4bit(base)
        and not any(weight.requires_grad for weight in base.parameters())
        and len(layer.lora_A) == 1
        and not layer.lora_variant
        and not any(layer.lora_bias.values())
        and all(isinstance(dropout, nn.Identity) for dropout in layer.lora_dropout.values())
    )


def _forward(
    layer: Any, forward_of_peft: Any, hardware: Hardware, x: Tensor, *arguments: Any, **options: Any
) -> Tensor:
    """The fused forward of a layer.

    PEFT's where the adapter is off, merged, chosen by row or of other layers, for a single vector, or the types differ.
    """
    names, base, dtype = layer.active_adapters, layer.base_layer, hardware.compute_dtype
    is_plain = len(names) == 1 and names[0] in layer.lora_A and x.dim() > 1
    is_plain = is_plain and not (arguments or options or layer.disable_adapters or layer.merged)
    if is_plain and hardware.precision != "fp32" and type(base) is nn.Linear:  # one in 4 bits answers in x's type
        x = x.to(dtype)
    if not is_plain or x.dtype != dtype or getattr(base, "compute_dtype", None) not in (None, dtype):
        return cast(Tensor, forward_of_peft(x, *arguments, **options))
    a, b = layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight
    return cast(Tensor, LoraProduct.apply(x, base, a, b, layer.scaling[names[0]]))  # type: ignore[no-untyped-call]


class LoraProduct(torch.autograd.Function):
    """The output of a frozen linear layer plus `scaling` times that of its adapter: base(x) + scaling x A' B'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: nn.Module, a: Tensor, b: Tensor, scaling: float) -> Tensor:
        """x (..., inputs), A (rank, inputs), B (outputs, rank) -> (..., outputs), in the type of x.

        B is scaled, as the smallest of what could be.
        """
        low = x.flatten(0, -2) @ a.to(x.dtype).t()
        output = cast(Tensor, base(x))
        output.flatten(0, -2).addmm_(low, (b * scaling).to(x.dtype).t())
        ctx.save_for_backward(x, low, a, b)
        ctx.base, ctx.scaling = base, scaling
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, A and B."""
        x, low, a, b = ctx.saved_tensors
        grad = grad_outputs[0].flatten(0, -2)
        low_grad = grad @ (b * ctx.scaling).to(x.dtype)
        a_grad = (low_grad.t() @ x.flatten(0, -2)).to(a.dtype)
        b_grad = (grad.t() @ low).to(b.dtype).mul_(ctx.scaling)
        x_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = grad @ dense_weight(ctx.base, x.dtype)
            x_grad = x_grad.addmm_(low_grad, a.to(x.dtype)).view_as(x)
        return x_grad, None, a_grad, b_grad, None
