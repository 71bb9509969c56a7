"""Loss of a language model from its target positions only: (batch x length x vocabulary) never exists in float32.

For model types whose head is a plain linear layer the hidden states of the positions that predict a target go through
the head in chunks, and each chunk's gradient is computed at once, so only one chunk of logits is ever alive. Every
other model runs its own forward with `logits_to_keep`: what it does to its logits (soft caps, scales) is its own.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PLAIN_HEADS = {"llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2"}
CHUNK_BYTES = 256 << 20  # of float32 logits alive at once


class Batch:
    """One micro-batch, on the device.

    Attributes:
        input_ids: (rows, length) int64, padded on the right. No attention mask is needed: the model is causal, and
            padding comes after everything real.
        position_ids: (rows, length) int64, starting again at 0 with every sequence of a packed row; `None` when no row
            holds more than one.
        predictors: (targets,) int64 indices into the flattened (rows x length) positions that predict a target.
        target_ids: (targets,) int64, the tokens they must predict.
        num_tokens: real tokens, padding not counted.
    """

    def __init__(
        self, input_ids: Tensor, position_ids: Tensor | None, predictors: Tensor, target_ids: Tensor, num_tokens: int
    ) -> None:
        self.input_ids = input_ids
        self.position_ids = position_ids
        self.predictors = predictors
        self.target_ids = target_ids
        self.num_tokens = num_tokens

    def to(self, device: torch.device) -> "Batch":
        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        positions = None if self.position_ids is None else moved(self.position_ids)
        return Batch(moved(self.input_ids), positions, moved(self.predictors), moved(self.target_ids), self.num_tokens)


def summed_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Sum over the batch's targets of the cross-entropy in nats (float32 scalar). `model` may carry a PEFT adapter."""
    base: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "use_cache": False}
    if batch.position_ids is not None:
        inputs["position_ids"] = batch.position_ids
    head = base.get_output_embeddings()
    if base.config.model_type in PLAIN_HEADS and type(head) is nn.Linear:
        hidden = base.base_model(**inputs).last_hidden_state.flatten(0, 1)[batch.predictors]
        weight: Tensor = head.weight
        bias: Tensor | None = head.bias
        if not torch.is_grad_enabled():  # autograd asks for a leaf's gradient even then, and it is as large as the head
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        loss: Tensor = ChunkedCrossEntropy.apply(hidden, weight, bias, batch.target_ids)  # type: ignore[no-untyped-call]
        return loss
    length = batch.input_ids.shape[1]
    columns, column_of = torch.unique(batch.predictors % length, return_inverse=True)
    logits = base(**inputs, logits_to_keep=columns).logits[batch.predictors // length, column_of]
    return F.cross_entropy(logits.float(), batch.target_ids, reduction="sum")


class ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear head, chunk by chunk, with the gradients taken in the forward pass.

    hidden (targets, width), weight (vocabulary, width), bias (vocabulary,) or None, target_ids (targets,) -> sum.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target_ids: Tensor) -> Tensor:
        operands = (hidden, weight, bias)
        grads = [
            torch.zeros_like(tensor, dtype=torch.float32) if tensor is not None and wanted else None
            for tensor, wanted in zip(operands, ctx.needs_input_grad, strict=False)
        ]
        total = hidden.new_zeros((), dtype=torch.float32)
        size = max(1, CHUNK_BYTES // (4 * weight.shape[0]))
        for start in range(0, len(hidden), size):
            piece, ids = hidden[start : start + size], target_ids[start : start + size]
            logits = F.linear(piece, weight, bias)
            total += F.cross_entropy(logits.float(), ids, reduction="sum")
            if any(grad is not None for grad in grads):
                _add_gradients(grads, slice(start, start + size), piece, weight, logits, ids)
        pairs = zip(grads, operands, strict=True)
        ctx.grads = [None if grad is None or own is None else grad.to(own.dtype) for grad, own in pairs]
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if grad is None else grad.mul_(grad_outputs[0]) for grad in ctx.grads), None)


def _add_gradients(
    grads: list[Tensor | None], rows: slice, piece: Tensor, weight: Tensor, logits: Tensor, ids: Tensor
) -> None:
    """Gradients of the summed loss: (softmax - one-hot), then the two products of a linear layer's backward pass."""
    grad = torch.softmax(logits.float(), dim=-1)
    grad[torch.arange(len(ids), device=ids.device), ids] -= 1
    narrow = grad.to(logits.dtype)  # the type in which the head itself was computed, as autograd would do
    hidden_grad, weight_grad, bias_grad = grads
    if hidden_grad is not None:
        hidden_grad[rows] = (narrow @ weight.to(narrow.dtype)).float()
    if weight_grad is not None:
        weight_grad += (narrow.T @ piece.to(narrow.dtype)).float()
    if bias_grad is not None:
        bias_grad += grad.sum(0)
