"""A head that is one linear layer, position by position in chunks: only one chunk of its logits is ever alive.

For the sum of the cross-entropies the gradients are taken in the forward pass, while a chunk's logits are there: what
comes back is one number. For log-probabilities of single targets one number a target comes back, so that the gradient
of the hidden states can still be taken in the forward pass, row by row; only a head that is trained itself has its
logits made again.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftui.models.logits import CHUNK_BYTES

from ..distributed.sharded_base import gather_weights


class TargetFacts(NamedTuple):
    """What is known of each target, float32. Only `log_probs` carries a gradient; the others are there when asked for.

    Attributes:
        log_probs: (targets,) natural logarithm of the probability of each target.
        entropy: (targets,) of the whole prediction, in nats.
        squares: (targets,) ln of the sum over the vocabulary of the squared probabilities.
    """

    log_probs: Tensor
    entropy: Tensor | None = None
    squares: Tensor | None = None


class CrossEntropy(NamedTuple):
    """Sums over targets, float32 scalars, and `each`. Only `loss` carries a gradient.

    Attributes:
        loss: cross-entropy in nats, with smoothed labels if asked for.
        nats: cross-entropy without smoothing.
        num_right: targets that no other token is likelier than.
        each: (targets,) float32, the cross-entropy of each without smoothing.
    """

    loss: Tensor
    nats: Tensor
    num_right: Tensor
    each: Tensor


def chunked_cross_entropy(head: nn.Linear, hidden: Tensor, target_ids: Tensor, smoothing: float) -> CrossEntropy:
    """Sums over the targets of hidden states (targets, width)."""
    sums = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, *_operands(head), target_ids, smoothing
    )
    return CrossEntropy(*sums)


def count_right(logits: Tensor, target_ids: Tensor) -> Tensor:
    """Targets (float32 scalar) that have the largest of their logits (targets, vocabulary).

    On a CPU the largest value is found in a tenth of the time of its place. Two equal to the last bit both count.
    """
    return (logits.gather(1, target_ids[:, None]).squeeze(1) >= logits.amax(-1)).sum(dtype=torch.float32)


def chunked_log_probs(
    head: nn.Linear, hidden: Tensor, target_ids: Tensor, *, entropy: bool, squares: bool, temperature: float = 1.0
) -> TargetFacts:
    """What a linear head says of each target, from hidden states (targets, width); logits by `temperature`."""
    weight, bias = _operands(head)
    if temperature != 1:  # of what is multiplied the smallest is divided: the same logits, but for rounding
        hidden, bias = hidden / temperature, None if bias is None else bias / temperature
    facts = ChunkedLogProbs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, target_ids, entropy, squares
    )
    return TargetFacts(*facts)


def target_facts(
    logits: Tensor, target_ids: Tensor, *, entropy: bool = False, squares: bool = False
) -> tuple[TargetFacts, Tensor]:
    """What logits (targets, vocabulary) say of each target, and all their log-probabilities (float32).

    Autograd can follow `log_probs` back to the logits.
    """
    logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    with torch.no_grad():
        probs = logs.exp() if entropy or squares else logs
        entropies = torch.special.entr(probs).sum(-1) if entropy else None
        norms = 2 * torch.linalg.vector_norm(probs, dim=-1).log() if squares else None
    return TargetFacts(logs.gather(1, target_ids[:, None]).squeeze(1), entropies, norms), logs


def chunk_size(weight: Tensor) -> int:
    """Positions whose logits are made at once by a head (vocabulary, width)."""
    return max(1, CHUNK_BYTES // (4 * weight.shape[0]))


def _operands(head: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias. Without autograd they are cut off from it: it asks for a leaf's gradient even then."""
    weights = gather_weights(head)
    weight, bias = weights["weight"], weights.get("bias")
    if torch.is_grad_enabled():
        return weight, bias
    return weight.detach(), None if bias is None else bias.detach()


class ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear head, chunk by chunk, with the gradients taken in the forward pass.

    hidden (targets, width), weight (vocabulary, width), bias (vocabulary,) or None, target_ids (targets,) -> the fields
    of `CrossEntropy`.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target_ids: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sums; gradients of what needs one are computed here and kept."""
        operands = (hidden, weight, bias)
        grads = _make_gradients(operands, ctx.needs_input_grad)
        total, nats, num_right = (hidden.new_zeros((), dtype=torch.float32) for _ in range(3))
        each = hidden.new_empty(len(hidden), dtype=torch.float32)
        size = chunk_size(weight)
        for start in range(0, len(hidden), size):
            piece, ids = hidden[start : start + size], target_ids[start : start + size]
            logits = F.linear(piece, weight, bias)
            facts, logs = target_facts(logits, ids)
            nats -= facts.log_probs.sum()
            torch.neg(facts.log_probs, out=each[start : start + size])
            num_right += count_right(logits, ids)
            if smoothing:
                total -= smoothing * logs.mean(-1).sum()
            if any(grad is not None for grad in grads):
                output_grad = _output_gradient(logs.exp_(), ids, smoothing)
                _add_gradients(grads, slice(start, start + size), piece, weight, output_grad, logits.dtype)
                del output_grad
            del logits, facts, logs  # or two chunks of each would be there while the next is made
        ctx.dtypes = [None if own is None else own.dtype for own in operands]
        pairs = zip(grads, ctx.dtypes, strict=True)
        # float16 would lose what is small before the loss scale, a factor of the backward pass, has made it large
        ctx.grads = [grad if grad is None or dtype == torch.float16 else grad.to(dtype) for grad, dtype in pairs]
        ctx.mark_non_differentiable(nats, num_right, each)
        return total.add_(nats, alpha=1 - smoothing), nats, num_right, each

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass times that of the loss; none for target ids and smoothing."""
        pairs = zip(ctx.grads, ctx.dtypes, strict=True)
        return (*(None if grad is None else grad.mul_(grad_outputs[0]).to(dtype) for grad, dtype in pairs), None, None)


class ChunkedLogProbs(torch.autograd.Function):
    """Log-probabilities of a linear head, chunk by chunk.

    hidden (targets, width), weight (vocabulary, width), bias (vocabulary,) or None, target_ids (targets,), whether
    entropies and squares are asked for -> the fields of `TargetFacts`.

    Below a frozen head the gradient of the hidden states is known but for one factor a row, and is kept from the
    forward pass. A trained head's own gradient mixes the rows, so then the backward pass makes the logits again.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target_ids: Tensor, entropy: bool, squares: bool
    ) -> tuple[Tensor | None, ...]:
        """The same numbers with and without autograd: a policy that equals its reference is told so to the bit."""
        hidden_needs, *head_needs = ctx.needs_input_grad[:3]
        keeps = hidden_needs and not any(head_needs)
        grads = _make_gradients((hidden, None, None), (keeps, False, False))
        pieces, size = [], chunk_size(weight)
        for start in range(0, max(1, len(hidden)), size):
            rows = slice(start, start + size)
            logits = F.linear(hidden[rows], weight, bias)
            facts, logs = target_facts(logits, target_ids[rows], entropy=entropy, squares=squares)
            pieces.append(facts)
            if keeps:
                output_grad = _output_gradient(logs.exp_(), target_ids[rows])
                _add_gradients(grads, rows, hidden[rows], weight, output_grad, logits.dtype)
                del output_grad
            ctx.dtype = logits.dtype
            del logits, logs  # before the next chunk is made
        ctx.dtypes = [None if own is None else own.dtype for own in (hidden, weight, bias)]
        hidden_grad = grads[0]
        if hidden_grad is not None:  # float16 would lose what is small before the loss scale has made it large
            ctx.hidden_grad = hidden_grad if hidden.dtype == torch.float16 else hidden_grad.to(hidden.dtype)
        elif any(head_needs):
            ctx.save_for_backward(hidden, weight, bias, target_ids)
        columns = [None if column[0] is None else torch.cat(column) for column in zip(*pieces, strict=True)]
        ctx.mark_non_differentiable(*(column for column in columns[1:] if column is not None))
        ctx.set_materialize_grads(False)
        return tuple(columns)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, weight and bias; nothing else has one."""
        factors = -grad_outputs[0][:, None]
        if not any(ctx.needs_input_grad[1:3]):
            hidden_grad, ctx.hidden_grad = ctx.hidden_grad, None  # scaled where it lies: there is no second time
            return hidden_grad.mul_(factors).to(ctx.dtypes[0]), *[None] * 5
        *operands, target_ids = ctx.saved_tensors
        hidden, weight, bias = operands
        narrow = weight.to(ctx.dtype)
        narrow_bias = None if bias is None else bias.to(ctx.dtype)
        grads = _make_gradients(operands, ctx.needs_input_grad)
        size = chunk_size(weight)
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            piece = hidden[rows].to(ctx.dtype)
            logs = torch.log_softmax(F.linear(piece, narrow, narrow_bias), dim=-1, dtype=torch.float32)
            output_grad = _output_gradient(logs.exp_(), target_ids[rows]).mul_(factors[rows])
            _add_gradients(grads, rows, piece, narrow, output_grad, ctx.dtype)
            del logs, output_grad
        pairs = zip(grads, ctx.dtypes, strict=True)
        return (*(None if grad is None else grad.to(dtype) for grad, dtype in pairs), None, None, None)


def _make_gradients(operands: Sequence[Tensor | None], is_needed: Sequence[bool]) -> list[Tensor | None]:
    """A zero in float32 for each operand that needs a gradient."""
    return [
        torch.zeros_like(tensor, dtype=torch.float32) if tensor is not None and needed else None
        for tensor, needed in zip(operands, is_needed, strict=False)
    ]


def _output_gradient(probs: Tensor, ids: Tensor, smoothing: float = 0.0) -> Tensor:
    """Gradient of the summed cross-entropy by the logits: softmax less what should have been predicted.

    It takes the place of the probabilities (targets, vocabulary), float32.
    """
    if smoothing:
        probs -= smoothing / probs.shape[1]
    probs[torch.arange(len(ids), device=ids.device), ids] -= 1 - smoothing
    return probs


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
