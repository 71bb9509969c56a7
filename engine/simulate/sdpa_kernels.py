"""Which kernel torch takes for `scaled_dot_product_attention` on a card. On `meta` it would always be the plain one.

Rules: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of pytorch (`can_use_*_attention`, `priority_order`).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten

Backend = Literal["cudnn", "flash", "efficient", "math", "cpu"]

MASK_STEP = 16
"""The memory-efficient kernel wants rows of the mask that begin at multiples of it (attention.cu, `pad_bias`)."""


def backend_for(
    capability: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool
) -> Backend:
    """The kernel for these tensors on a card of this compute capability (89); 0: the CPU.

    cuDNN comes first on Hopper and B200 since torch 2.11 (with cuDNN > 9.15.1). Grouped heads reach the kernel of
    `efficient` in no release up to 2.13, so that without flash they end in the plain one.
    """
    width, is_half = query.shape[-1], query.dtype in (torch.float16, torch.bfloat16)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if capability == 0:
        return "cpu" if query.shape[-1] == value.shape[-1] and not (mask is not None and mask.requires_grad) else "math"
    if not capability >= 80 and query.dtype == torch.bfloat16:
        return "math"
    if capability in (90, 100, 103) and is_half and width <= 128 and width % 8 == 0 and (dropout * 16) % 1 == 0:
        return "cudnn"
    if capability >= 80 and is_half and mask is None and width == value.shape[-1] and width <= 256:
        awkward = learns and not (width <= 192 or (dropout == 0 and width > 224)) and _is_small_chip(capability)
        if not awkward and (not is_causal or query.shape[-2] == key.shape[-2]):
            return "flash"
    bits = 16 if is_half else 32
    step = 128 // bits if capability >= 80 or is_half else 1
    if key.shape[-3] == query.shape[-3] and width % step == 0 and value.shape[-1] % step == 0:
        return "efficient"
    return "math"


def _is_small_chip(capability: int) -> bool:
    return 86 <= capability <= 89 or capability in (120, 121)


def attend(
    capability: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` as the card would do it."""
    backend = backend_for(capability, query, key, value, attn_mask, dropout_p, is_causal)
    if backend == "math":
        out = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return out[0]  # type: ignore[no-any-return]
    mask = None if attn_mask is None else _additive(attn_mask, query.dtype)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if backend == "cpu":
        out = aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale
        )
    elif backend == "flash":
        narrow = -query.shape[-1] % 8
        padded = [F.pad(t, (0, narrow)) for t in (query, key, value)] if narrow else [query, key, value]
        scale = scale if scale is not None else query.shape[-1] ** -0.5
        out = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale)
        return out[0][..., : query.shape[-1]] if narrow else out[0]  # type: ignore[no-any-return]
    else:
        bias = None if mask is None else _aligned(mask, query, key)
        kernel = getattr(aten, f"_scaled_dot_product_{backend}_attention")
        out = kernel(query, key, value, bias, learns, dropout_p, is_causal, scale=scale)
    return out[0]  # type: ignore[no-any-return]


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of booleans becomes one of numbers, at every call (attention.cpp, `convert_boolean_attn_mask`)."""
    if mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, torch.full((), float("-inf"), dtype=dtype, device=mask.device))


def _aligned(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    length = mask.shape[-1]
    if length % MASK_STEP:
        mask = F.pad(mask, (0, -length % MASK_STEP))[..., :length]
    return mask.expand(*query.shape[:-1], key.shape[-2])
