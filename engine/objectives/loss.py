"""Loss of a language model from its target positions only: (batch x length x vocabulary) never exists in float32.

For model types whose head is a plain linear layer the hidden states of the positions that predict a target go through
the head in chunks, and each chunk's gradient is computed at once, so only one chunk of logits is ever alive. Every
other model runs its own forward with `logits_to_keep`: what it does to its logits (soft caps, scales) is its own.

In training the loss may be more than the cross-entropy: smoothed labels, and the balance of its experts. An
evaluation (autograd off) is always the plain cross-entropy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftui.models.logits import PLAIN_HEADS

from ..models.transformers_internals import experts_balance, packing_is
from .chunked_head import CrossEntropy, chunked_cross_entropy, count_right

# Types whose balance loss is computed from the router's logits, so that padding can be left out in every case.
BALANCED = {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"}


class RowLayout(Enum):
    """How the sequences of a micro-batch lie in its rows; the values are words for the run's records."""

    PADDED = "padded"
    """A row each, or packed as the plan says, padded to the longest."""

    JOINED = "rows end to end"
    """All in one row, without padding."""

    SHARED = "rows end to end, prompts once"
    """The same, and what all answers of an example, or of a group, begin with is there once, in front of them."""


@dataclass(eq=False)
class Batch:
    """One micro-batch, on the device.

    Attributes:
        input_ids: (rows, length) int64, padded on the right. No attention mask is needed: the model is causal, and
            padding comes after everything real.
        position_ids: (rows, length) int64, starting again at 0 with every sequence of a packed row; `None` when no row
            has more than one.
        predictors: (targets,) int64 indices into the flattened (rows x length) positions that predict a target.
        target_ids: (targets,) int64, the tokens they must predict.
        amounts: what the sums of its losses are divided by in the end: `targets`, `examples` (sequences, or pairs),
            `chosen_targets` (those of chosen answers), `chosen` and `rejected` (such answers); and `tokens`, its real
            ones, without padding.
        lengths: (rows,) int64, the real tokens of each row; without it, none is padded.
        sequence_of: (targets,) int64, the number of the sequence that each target belongs to, ascending. The answers
            of pair n are the sequences 2n (chosen) and 2n + 1 (rejected).
        reference: (targets,) float32, log-probabilities of the targets under the reference model.
        labels: (sequences,) int8, those of `Sequence.label`.
        divergence: the mean log-ratio of model and reference on mismatched answers, in nats (stage kto).
        joined: where all sequences are end to end in the only row, the tokens of each piece of it. A negative number
            is a piece that continues the last positive one: an answer after its prompt (engine/models/joined_rows.py).
        ends: (sequences,) int64, where the last token of each stands in the flattened positions (stage rm).
        margins: (pairs,) float32, by how much the chosen answer is better; 0 where that is not known (stage rm).
        advantages: float32, how much better each sampled answer is than others, (sequences,) in stage grpo; each token
            than what was expected, (targets,) in stage ppo.
        old: (targets,) float32, log-probabilities of the targets when they were sampled; without it, they are those of
            now (stages grpo and ppo).
        values: (targets,) float32, what the value head said before each target when it was sampled (stage ppo).
        returns: (targets,) float32, what it should have said (stage ppo).
    """

    input_ids: Tensor
    position_ids: Tensor | None
    predictors: Tensor
    target_ids: Tensor
    amounts: dict[str, int]
    lengths: Tensor | None = None
    sequence_of: Tensor | None = None
    reference: Tensor | None = None
    labels: Tensor | None = None
    divergence: float = 0.0
    joined: tuple[int, ...] | None = None
    ends: Tensor | None = None
    margins: Tensor | None = None
    advantages: Tensor | None = None
    old: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """Real tokens, padding not counted."""
        return self.amounts["tokens"]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; the copy does not wait for the device."""
        moved = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)  # type: ignore[arg-type]


class Predictions(NamedTuple):
    """What a model makes of the positions that predict a batch's targets.

    Attributes:
        states: with a plain head its input, (targets, width); else the logits (targets, vocabulary).
        head: the plain head, if it is one.
        balance: while autograd is on, how evenly its experts are used, times the coefficient in the model's config
            (float32 scalar); `None` where there is nothing to balance.
        hidden: (targets, width), the last hidden states, if asked for.
    """

    states: Tensor
    head: nn.Linear | None
    balance: Tensor | None
    hidden: Tensor | None = None


def cross_entropy(model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> CrossEntropy:
    """Sums over the batch's targets, and what each adds. `model` may carry a PEFT adapter.

    While autograd is on, `label_smoothing` spreads that share of each target's probability evenly over the vocabulary,
    and a model with experts adds what keeps them evenly used: with the same share in a step as in a call of the model
    with labels, so times the number of targets.
    """
    smoothing = label_smoothing if torch.is_grad_enabled() else 0.0
    states, head, balance, _ = predict_targets(model, batch)
    if head is not None:
        found = chunked_cross_entropy(head, states, batch.target_ids, smoothing)
    else:
        found = _whole_cross_entropy(states, batch.target_ids, smoothing)
    return found if balance is None else found._replace(loss=found.loss + len(batch.target_ids) * balance)


def _whole_cross_entropy(logits: Tensor, target_ids: Tensor, smoothing: float) -> CrossEntropy:
    """The same from logits (targets, vocabulary) that are there already."""
    wide = logits.float()
    losses = F.cross_entropy(wide, target_ids, reduction="none", label_smoothing=smoothing)
    loss = losses.sum()
    with torch.no_grad():
        each = F.cross_entropy(wide, target_ids, reduction="none") if smoothing else losses.detach()
        return CrossEntropy(loss, each.sum() if smoothing else loss.detach(), count_right(logits, target_ids), each)


def predict_targets(model: nn.Module, batch: Batch, *, hidden: bool = False) -> Predictions:
    """One forward pass over a batch; only what predicts a target is kept of it. `model` may carry a PEFT adapter.

    `hidden`: keep the last hidden states of these positions, too.
    """
    base, inputs = model_and_inputs(model, batch)
    coefficient = _router_coefficient(base) if torch.is_grad_enabled() else None
    if coefficient is not None:
        inputs["output_router_logits"] = True
        if base.config.model_type not in BALANCED and batch.lengths is not None and batch.position_ids is None:
            inputs["attention_mask"] = _padding_mask(batch)
    head = base.get_output_embeddings() if has_plain_head(base) else None
    if head is not None:
        with packing_is(batch.position_ids is not None):
            outputs = base.base_model(**inputs)
        states = last = outputs.last_hidden_state.flatten(0, 1)[batch.predictors]
    else:
        with _last_states(base) as found:
            outputs, states = _target_logits(base, inputs, batch)
        last = found[0].flatten(0, 1)[batch.predictors] if hidden else None
    balance = None if coefficient is None else coefficient * _router_loss(base, outputs, batch)
    return Predictions(states, head, balance, last if hidden else None)


@contextmanager
def _last_states(base: Any) -> Iterator[list[Tensor]]:
    """A block that collects what the decoder under a model's own head gives it."""
    found: list[Tensor] = []
    hook = base.base_model.register_forward_hook(lambda module, inputs, outputs: found.append(outputs[0]))
    try:
        yield found
    finally:
        hook.remove()


def model_and_inputs(model: nn.Module, batch: Batch) -> tuple[Any, dict[str, Any]]:
    """The model under an adapter, and the arguments of its forward for a batch."""
    base = under_adapter(model)
    inputs: dict[str, Any] = {"input_ids": batch.input_ids}
    if batch.position_ids is not None:
        inputs = _in_one_row(base, inputs | {"position_ids": batch.position_ids})
    if batch.joined is not None and not _has_flash(base):
        inputs["attention_mask"] = torch.tensor(batch.joined).view(1, 1, 1, -1)  # read on the host, in each layer
    return base, inputs | {"use_cache": False}


def under_adapter(model: nn.Module) -> Any:
    """The model itself where it carries no adapter. (PEFT leaves a `peft_config` on the base too.)"""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def _has_flash(base: Any) -> bool:
    return str(base.config._attn_implementation).startswith("flash")


def _in_one_row(base: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Packed inputs (rows, length), for flash attention as one row (1, rows x length).

    That kernel looks at positions only where there is one row; in several it would let packed sequences see each other
    (transformers 5.24, `_is_packed_sequence`). Each row begins at position 0, so rows stay apart as sequences do.
    """
    if not _has_flash(base):
        return inputs
    return {name: tensor.reshape(1, -1) for name, tensor in inputs.items()}


def has_plain_head(base: Any) -> bool:
    """Whether the logits are one linear layer of the last hidden state. Code from elsewhere may do more to them."""
    is_known = base.config.model_type in PLAIN_HEADS and type(base).__module__.startswith("transformers.")
    return is_known and type(base.get_output_embeddings()) is nn.Linear


def _target_logits(base: Any, inputs: dict[str, Any], batch: Batch) -> tuple[Any, Tensor]:
    """The model's own forward: what it returns, and the logits (targets, vocabulary)."""
    length = inputs["input_ids"].shape[1]
    columns, column_of = torch.unique(batch.predictors % length, return_inverse=True)
    with packing_is(batch.position_ids is not None):
        outputs = base(**inputs, logits_to_keep=columns)
    if outputs.logits.shape[1] != len(columns):  # older model types ignore it and make all of them
        column_of = batch.predictors % length
    return outputs, outputs.logits[batch.predictors // length, column_of]


def _router_coefficient(base: Any) -> float | None:
    """The weight of the experts' balance in the loss, as in transformers: none unless the config asks for it."""
    if not getattr(base.config, "output_router_logits", False):
        return None
    coefficient: float | None = getattr(base, "router_aux_loss_coef", getattr(base, "aux_loss_coef", None))
    return coefficient


def _router_loss(base: Any, outputs: Any, batch: Batch) -> Tensor:
    """The experts' balance loss (float32 scalar).

    It is a product of two means over the tokens of a micro-batch, so 1x8 and 2x4 agree in it only as well as their
    micro-batches resemble each other: each is balanced by itself, as in every framework that accumulates. Padding is
    not counted (but in packed rows of types that are not in BALANCED).
    """
    if base.config.model_type not in BALANCED:
        loss: Tensor = outputs.aux_loss
    else:
        mask = None if batch.lengths is None else _padding_mask(batch)
        loss = experts_balance(base, outputs.router_logits, mask)
    return loss.float()


def _padding_mask(batch: Batch) -> Tensor:
    """(rows, length) bool: true where there is a token, false where there is padding."""
    assert batch.lengths is not None, "only padded rows have a mask"
    return torch.arange(batch.input_ids.shape[1], device=batch.lengths.device)[None] < batch.lengths[:, None]
