"""What a device does that the `meta` device does not show: kernels it would choose, memory they need inside.

Each rule names its source: a file of torch 2.13 (aten/src/ATen, torch/optim), flash-attention or bitsandbytes 0.50 with
the function in it. Figures are bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import optimizer as torch_optimizer
from torch.utils import _foreach_utils

from ftui.hardware.devices import Card, MiB

from .meta_ops import patch_functions
from .sdpa_kernels import attend

aten = torch.ops.aten

Sizes = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[int]]
"""Of an operation's arguments: the bytes of each block it needs while it runs, besides its results."""


@dataclass(frozen=True)
class OpWorkspace:
    """The blocks of one operation, free when it ends; `is_first`: they are taken before its results."""

    sizes: Sizes
    is_first: bool = False


PRODUCTS = {
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default, aten.addmv.default, aten.dot.default,
}  # fmt: skip
"""Operations of cuBLAS; bitsandbytes' join them where it is installed."""


@dataclass(frozen=True)
class Kernels:
    """How one device computes.

    Attributes:
        capability: compute capability times ten; 0: the CPU.
        rounding: an allocation is a multiple of as many bytes.
        workspace: bytes that cuBLAS takes in each thread that multiplies matrices (there are two: autograd's too).
        temporaries: by operation.
    """

    capability: int
    rounding: int
    workspace: int
    temporaries: Mapping[Any, OpWorkspace]

    def chosen(self) -> AbstractContextManager[None]:
        """While it is open, torch's functions take on `meta` the kernels they would take on the device.

        Functions are replaced, since a mode for functions would not be seen by what a checkpoint computes again in the
        backward pass.
        """
        changes: list[tuple[Any, str, Any]] = [
            (F, "scaled_dot_product_attention", partial(attend, self.capability)),
            (torch_optimizer, "_get_fused_kernels_supported_devices", lambda: ["cuda", "cpu", "meta"]),
        ]
        if self.capability:  # optimizers work on lists of tensors there (optimizer.py, _default_to_fused_or_foreach)
            lists = "_get_foreach_kernels_supported_devices", lambda: ["cuda", "meta"]
            changes += [(F, "softmax", _softmax), (F, "dropout", _dropout)]
            changes += [(torch_optimizer, *lists), (_foreach_utils, *lists)]
        return patch_functions(changes)


def kernels_for(card: Card) -> Kernels:
    """Those of a card, or of the CPU."""
    return cuda_kernels(card.capability) if card.kind == "cuda" else cpu_kernels()


def cuda_kernels(capability: int) -> Kernels:
    """Of an NVIDIA card of this compute capability (75 = T4, 80 = A100, 89 = RTX 4090, 90 = H100)."""
    temporaries: dict[Any, OpWorkspace] = {
        aten._softmax_backward_data.default: OpWorkspace(_softmax_backward),
        aten._scaled_dot_product_flash_attention_backward.default: OpWorkspace(_flash_backward),
        aten._scaled_dot_product_cudnn_attention_backward.default: OpWorkspace(_flash_backward),
        aten._scaled_dot_product_efficient_attention_backward.default: OpWorkspace(_efficient_backward),
    }
    workspace = 32 * MiB if capability >= 90 else 8 * MiB + 128 * 1024  # CublasHandlePool.cpp, parseChosenWorkspaceSize
    return Kernels(capability, 512, workspace, temporaries | _of_bitsandbytes())


def cpu_kernels() -> Kernels:
    """Of the CPU: malloc aligns to 64 bytes (c10/core/alignment.h, gAlignment)."""
    return Kernels(0, 64, 0, _of_bitsandbytes())


def _of_bitsandbytes() -> dict[Any, OpWorkspace]:
    try:
        import bitsandbytes  # noqa: F401  registers its operations
    except ImportError:
        return {}
    PRODUCTS.add(torch.ops.bitsandbytes.gemm_4bit.default)
    return {torch.ops.bitsandbytes.gemm_4bit.default: OpWorkspace(_gemm_4bit, is_first=True)}


def _softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """softmax(float16, dtype=float32) reads float16 itself; bfloat16 is copied first (SoftMax.cpp, softmax)."""
    if dtype == torch.float32 and input.dtype == torch.float16 and dim is not None:
        return aten._softmax(input, dim, True)  # type: ignore[no-any-return]
    return torch.softmax(input, -1 if dim is None else dim, dtype=dtype)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """It keeps a mask of one byte an element (Dropout.cpp, is_fused_kernel_acceptable)."""
    if not training or p == 0.0 or inplace:
        return torch.dropout_(input, p, training) if inplace else torch.dropout(input, p, training)
    return torch.native_dropout(input, p, True)[0]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _softmax_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """First gradient x output is written (cuda/SoftMax.cu, softmax_backward_cuda_out)."""
    gradient, output = args[0], args[1]
    return (max(_bytes(gradient), _bytes(output)),)


def _flash_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """Sums of rows and the gradient of the queries in float32; k and v for every head (flash_api.cpp, mha_bwd).

    Arguments: gradient, q, k, v, ... of (batch, heads, length, width); rows by 128, width by 32.
    """
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    rows = batch * heads * (-(-length // 128) * 128)
    sizes = [rows * 4, rows * (-(-width // 32) * 32) * 4]
    if key.shape[1] != heads:
        sizes += [batch * key.shape[2] * heads * width * query.element_size()] * 2
    return sizes


def _efficient_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """`delta` and the gradient of the queries in float32 (mem_eff_attention/kernel_backward.h, workspace_size).

    Blocks of 64 rows. Float32: `delta` comes from a product as large as the output, gone before the rest.
    """
    query = args[1]
    batch, heads, length, width = query.shape
    delta, queries = batch * heads * length * 4, batch * heads * (-(-length // 64) * 64) * width * 4
    if query.dtype == torch.float32:
        return (delta, max(queries, _bytes(query)))
    return (delta, queries)


def _gemm_4bit(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """Above a few hundred rows the whole weight is dequantised inside (backends/cuda/ops.py, gemm_4bit).

    Arguments: input, packed weight, its shape, absmax, ...; the quantised absmax is made whole too.
    """
    shape, element = args[2], args[0].element_size()
    nested = kwargs.get("absmax_8bit")
    return (shape[0] * shape[1] * element, 0 if nested is None else nested.numel() * 4)
