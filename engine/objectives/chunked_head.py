"""A head that is one linear layer, position by position in chunks: only one chunk of its logits is ever alive."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ftui.models.logits import CHUNK_BYTES


def chunk_size(weight: Tensor) -> int:
    """Positions whose logits are made at once by a head (vocabulary, width)."""
    return max(1, CHUNK_BYTES // (4 * weight.shape[0]))


class ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear head, chunk by chunk, with the gradients taken in the forward pass.

    hidden (targets, width), weight (vocabulary, width), bias (vocabulary,) or None, target_ids (targets,) -> sum.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target_ids: Tensor, smoothing: float
    ) -> Tensor:
        """Sum of the losses in nats (float32 scalar); gradients of what needs one are computed here and kept."""
        operands = (hidden, weight, bias)
        grads = [
            torch.zeros_like(tensor, dtype=torch.float32) if tensor is not None and is_needed else None
            for tensor, is_needed in zip(operands, ctx.needs_input_grad, strict=False)
        ]
        total = hidden.new_zeros((), dtype=torch.float32)
        size = chunk_size(weight)
        for start in range(0, len(hidden), size):
            piece, ids = hidden[start : start + size], target_ids[start : start + size]
            logits = F.linear(piece, weight, bias)
            total += F.cross_entropy(logits.float(), ids, reduction="sum", label_smoothing=smoothing)
            if any(grad is not None for grad in grads):
                output_grad = _output_gradient(logits, ids, smoothing)
                _add_gradients(grads, slice(start, start + size), piece, weight, output_grad, logits.dtype)
        ctx.dtypes = [None if own is None else own.dtype for own in operands]
        pairs = zip(grads, ctx.dtypes, strict=True)
        # float16 would lose what is small before the loss scale, a factor of the backward pass, has made it large
        ctx.grads = [grad if grad is None or dtype == torch.float16 else grad.to(dtype) for grad, dtype in pairs]
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass times the incoming one; none for target ids and smoothing."""
        pairs = zip(ctx.grads, ctx.dtypes, strict=True)
        return (*(None if grad is None else grad.mul_(grad_outputs[0]).to(dtype) for grad, dtype in pairs), None, None)


def _output_gradient(logits: Tensor, ids: Tensor, smoothing: float) -> Tensor:
    """Gradient of the summed loss by the logits, float32: softmax less what should have been predicted."""
    grad = torch.softmax(logits.float(), dim=-1)
    if smoothing:
        grad -= smoothing / logits.shape[1]
    grad[torch.arange(len(ids), device=ids.device), ids] -= 1 - smoothing
    return grad


def _add_gradients(
    grads: list[Tensor | None], rows: slice, piece: Tensor, weight: Tensor, grad: Tensor, dtype: torch.dtype
) -> None:
    """The products of a linear layer's backward pass, in `dtype`: that of the forward pass, as autograd does."""
    factor = grad if dtype == torch.float16 else grad.to(dtype)
    hidden_grad, weight_grad, bias_grad = grads
    if hidden_grad is not None:
        hidden_grad[rows] = _product(factor, weight.to(dtype))
    if weight_grad is not None:
        weight_grad += _product(factor.T, piece.to(dtype))
    if bias_grad is not None:
        bias_grad += grad.sum(0)


def _product(factor: Tensor, other: Tensor) -> Tensor:
    """factor (n, m) times other (m, k), in the type of `other`; the result (n, k) in float32.

    For float16, whose numbers are 6e-8 to 65504 in size, a float32 factor is narrowed row by row: each is stretched so
    far that neither it nor its sums, whatever their signs, can pass 32768, and the result is shrunk again.
    """
    if other.dtype != torch.float16:
        return (factor @ other).float()
    low, high = torch.aminmax(other)
    largest = torch.maximum(-low, high).float().clamp(min=1)
    bounds = torch.linalg.vector_norm(factor, ord=1, dim=1, keepdim=True) * largest
    stretch: Tensor = 2**15 / bounds.clamp(min=2**-60)
    narrow = torch.mul(factor, stretch, out=torch.empty_like(factor, dtype=other.dtype))
    return (narrow @ other).float() / stretch
