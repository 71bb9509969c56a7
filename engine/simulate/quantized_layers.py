"""A base that bitsandbytes would hold in 4 or 8 bits, on the `meta` device: its layers with weights and constants.

transformers' own quantizer chooses the layers and puts bitsandbytes' in their place, as it does before it reads a file.
"""

import importlib
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig, PreTrainedModel
from transformers.quantizers.auto import AutoHfQuantizer

from .loading import pack_layer
from .meta_ops import patch_functions


def pack_layers(model: PreTrainedModel, config: BitsAndBytesConfig) -> None:
    """Hold the linear layers of a model on `meta` as `config` says, in place."""
    from bitsandbytes.nn.modules import Int8Params, Linear4bit, Linear8bitLt

    quantizer: Any = AutoHfQuantizer.from_config(config, pre_quantized=False)
    dtype = model.dtype
    quantizer.preprocess_model(model=model, device_map={"": "meta"})
    quantizer.postprocess_model(model)
    for module in model.modules():
        if isinstance(module, Linear4bit):
            pack_layer(module, bool(config.bnb_4bit_use_double_quant), dtype)
        elif isinstance(module, Linear8bitLt):
            numbers = torch.empty(module.weight.shape, dtype=torch.int8, device="meta")
            scales = torch.empty(len(numbers), device="meta")
            module.weight = Int8Params(numbers, requires_grad=False, CB=numbers, SCB=scales)
        else:
            continue
        if module.bias is not None:
            module.bias = nn.Parameter(module.bias.to(dtype), requires_grad=False)


def multiply_in_8bit(device: str) -> AbstractContextManager[None]:
    """While it is open, an 8-bit layer on `meta` multiplies as it would on this device, with no outliers."""
    bitsandbytes: Any = importlib.import_module("bitsandbytes")
    product = _OnCuda if device == "cuda" else _Dequantised

    def matmul(
        A: Tensor, B: Tensor, out: Any = None, state: Any = None, threshold: float = 0.0, bias: Any = None
    ) -> Any:
        return product.apply(A, state.CB, state.SCB, bias)  # type: ignore[no-untyped-call]

    return patch_functions([(bitsandbytes, "matmul", matmul)])


class _Product(torch.autograd.Function):
    """Inputs times a packed weight; backward, the weight is dequantised."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        gradient = grad_outputs[0]
        flat = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        whole = ctx.packed.to(ctx.kept.dtype, copy=True).mul_(ctx.scales.unsqueeze(1).mul(1.0 / 127.0))
        return torch.matmul(flat.to(ctx.kept.dtype), whole).view(ctx.shape), None, None, None


class _OnCuda(_Product):
    """bitsandbytes 0.50 `MatMul8bitLt` and its kernels for CUDA: float16 inside, the input is kept as it came."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, packed: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
        rows, dtype = math.prod(inputs.shape[:-1]), inputs.dtype
        half = inputs.reshape(rows, -1).to(torch.float16)
        small = half.abs() >= 6.0  # where its outliers are
        quantised = torch.empty_like(half, dtype=torch.int8)
        statistics = half.new_empty(rows, dtype=torch.float32)
        del half, small
        sums = quantised.new_empty(rows, len(packed), dtype=torch.int32)
        output = torch.empty_like(sums, dtype=torch.float16)
        ctx.kept, ctx.packed, ctx.scales, ctx.shape, ctx.statistics = inputs, packed, scales, inputs.shape, statistics
        return output.to(dtype).reshape(*inputs.shape[:-1], len(packed))


class _Dequantised(_Product):
    """bitsandbytes 0.50 `MatMul8bitFp`, which it takes where it has no kernels: the weight is made whole each time."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, packed: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
        whole = packed.to(inputs.dtype).mul_(scales.unsqueeze(1).mul(1.0 / 127.0))
        ctx.kept, ctx.packed, ctx.scales, ctx.shape = inputs, packed, scales, inputs.shape
        return nn.functional.linear(inputs, whole, bias)
