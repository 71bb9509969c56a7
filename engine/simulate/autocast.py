"""torch.autocast for tensors on the `meta` device, which torch itself has not.

Which functions compute in 16 bits and which in float32 on which device, and when a cast is kept for later, are the
rules of torch 2.13 (aten/src/ATen/autocast_mode.h and .cpp; the same lists since 2.1, `rms_norm` since 2.9).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LOWER = (
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution",
    "prelu", "addmm", "addbmm", "baddbmm", "bmm", "mm", "matmul", "__matmul__", "__rmatmul__", "einsum", "linear",
)  # fmt: skip
LOWER_CUDA = ("addmv", "addr", "mv", "chain_matmul")
FLOAT32_CUDA = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow", "__pow__", "layer_norm", "rms_norm", "group_norm", "norm", "cosine_similarity", "dist", "cdist",
    "renorm", "logsumexp", "softplus", "nll_loss", "kl_div", "binary_cross_entropy_with_logits", "cross_entropy",
)  # fmt: skip
FLOAT32_CUDA_UNLESS_TOLD = ("softmax", "log_softmax", "cumprod", "cumsum", "prod", "sum")
"""They are told to give a float32 result, unless the caller asks for a type."""


class Autocast(TorchFunctionMode):
    """A block whose heavy arithmetic is in `dtype`; `device` is the one that is simulated.

    Casts of trained float32 weights are kept until the block ends, as torch keeps them until the outermost one does.
    """

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self._device, self._dtype = device, dtype
        self._kept: dict[int, Tensor] = {}
        self._lower = _functions((*LOWER, *(LOWER_CUDA if device == "cuda" else ())))
        self._float32 = _functions(FLOAT32_CUDA if device == "cuda" else ())
        self._unless_told = _functions(FLOAT32_CUDA_UNLESS_TOLD if device == "cuda" else ())
        self._attention: Callable[..., Tensor] | None = None

    def __enter__(self) -> "Autocast":
        self._attention = attention = F.scaled_dot_product_attention

        def attend(
            query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *rest: Any, **named: Any
        ) -> Tensor:
            query, key, value, attn_mask = self._lowered((query, key, value, attn_mask))
            return attention(query, key, value, attn_mask, *rest, **named)

        F.scaled_dot_product_attention = attend
        if self._device == "cuda":  # PEFT asks
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", self._dtype)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        F.scaled_dot_product_attention = self._attention  # type: ignore[assignment]
        if self._device == "cuda":
            torch.set_autocast_enabled("cuda", False)
        self._kept.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._lower and not _is_rotary(args):
            return func(*self._lowered(args), **{name: self._low(value) for name, value in kwargs.items()})
        if func in self._float32:
            return func(*map(_full, args), **{name: _full(value) for name, value in kwargs.items()})
        if func in self._unless_told and _is_half(args[0]) and not _is_told(args, kwargs):
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)

    def _lowered(self, values: Iterable[Any]) -> list[Any]:
        return [self._low(value) for value in values]

    def _low(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._lowered(value))
        if (
            not isinstance(value, Tensor)
            or not value.is_floating_point()
            or value.dtype in (self._dtype, torch.float64)
        ):
            return value
        if not (value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()):
            return value.to(self._dtype)
        if id(value) not in self._kept:
            self._kept[id(value)] = value.to(self._dtype)
        return self._kept[id(value)]


def _full(value: Any) -> Any:
    return value.float() if _is_half(value) else value


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def _is_told(args: Any, kwargs: dict[str, Any]) -> bool:
    return kwargs.get("dtype") is not None or any(isinstance(value, torch.dtype) for value in args)


def _is_rotary(args: Any) -> bool:
    """An outer product is the table of rotary positions, which transformers computes outside of autocast."""
    return len(args) > 1 and all(isinstance(a, Tensor) and a.dim() == 3 for a in args[:2]) and args[0].shape[-1] == 1


def _functions(names: Iterable[str]) -> frozenset[Any]:
    """Every function of torch by these names: of the module, of tensors, and those behind torch.nn.functional."""
    homes = (torch, torch.Tensor, torch._C._nn, F, torch._C._VariableFunctions)
    return frozenset(getattr(home, name) for home in homes for name in names if hasattr(home, name))
