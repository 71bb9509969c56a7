"""What tensors on `meta` cannot tell or do: answers that depend on values, and operations torch has not for them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Replacement = tuple[Any, str, Any]
"""Where it stands, its name there, and what stands there instead."""


@contextmanager
def patch_functions(changes: Sequence[Replacement]) -> Iterator[None]:
    """While it is open, each of these stands in the place of what was there."""
    originals = [(home, name, getattr(home, name)) for home, name, _ in changes]
    try:
        for home, name, value in changes:
            setattr(home, name, value)
        yield
    finally:
        for home, name, value in originals:
            setattr(home, name, value)


def assume_full_rows(length: int) -> AbstractContextManager[None]:
    """While it is open, values are those of a batch of full rows of `length`, their experts evenly used.

    New tensors and norms are made without torch's Python code for `meta`, which takes most of a simulation's time.
    """
    own_autocast, own_norm = torch.autocast, torch.linalg.vector_norm

    def columns(values: Tensor, *rest: Any, return_inverse: bool = False, **named: Any) -> Any:
        places = torch.empty(length - 1, dtype=torch.int64, device=values.device)  # of a batch, those with a target
        return (places, torch.empty_like(values)) if return_inverse else places

    def norm(values: Tensor, *rest: Any, **named: Any) -> Tensor:
        return own_norm(values, *rest, **named) if rest[1:] or named else values.new_empty(())

    def like(values: Tensor, *, dtype: torch.dtype | None = None, **named: Any) -> Tensor:
        return torch.empty(values.shape, dtype=dtype or values.dtype, device=values.device)

    def autocast(device_type: str, *rest: Any, **named: Any) -> Any:
        return nullcontext() if device_type == "meta" else own_autocast(device_type, *rest, **named)

    changes: list[tuple[Any, str, Any]] = [
        (torch, "unique", columns), (torch, "zeros_like", like), (torch.linalg, "vector_norm", norm),
        (torch, "autocast", autocast), (torch, "_grouped_mm", _grouped), (F, "grouped_mm", _grouped),
    ]  # fmt: skip
    return patch_functions(changes)


def _grouped(rows: Tensor, weights: Tensor, *rest: Any, **named: Any) -> Tensor:
    product: Tensor = _Grouped.apply(rows, weights)  # type: ignore[no-untyped-call]
    return product


class _Grouped(torch.autograd.Function):
    """rows (n, in), sorted by their group, times the matrix (in, out) of each group: (n, out)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights)
        return rows.new_empty(len(rows), weights.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, weights = ctx.saved_tensors
        wants_rows, wants_weights = ctx.needs_input_grad
        return (
            rows.new_empty(rows.shape) if wants_rows else None,
            weights.new_empty(weights.shape) if wants_weights else None,
        )
