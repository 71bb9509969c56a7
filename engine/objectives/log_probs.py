"""Log-probabilities of a batch's targets, for the stages that compare answers."""

from typing import NamedTuple

from torch import Tensor, nn

from .chunked_head import chunked_log_probs, target_facts
from .loss import Batch, predict_targets


class TokenLogProbs(NamedTuple):
    """What a model says of each of a batch's targets, float32, in the order of `Batch.target_ids`.

    Attributes:
        values: (targets,) natural logarithm of the probability of each target; a gradient is carried by it, by
            `balance` and by `hidden`.
        entropy: (targets,) of the whole prediction, in nats, if asked for.
        squares: (targets,) ln of the sum over the vocabulary of the squared probabilities, if asked for.
        balance, hidden: see `Predictions`.
    """

    values: Tensor
    entropy: Tensor | None
    squares: Tensor | None
    balance: Tensor | None
    hidden: Tensor | None = None


def target_log_probs(
    model: nn.Module,
    batch: Batch,
    *,
    entropy: bool = False,
    squares: bool = False,
    hidden: bool = False,
    temperature: float = 1.0,
) -> TokenLogProbs:
    """The log-probability of each target, with a gradient where autograd is on. `model` may carry a PEFT adapter.

    The same weights give the same bits with autograd and without. With a plain head no more than a chunk of logits
    exists at once. The logits are divided by `temperature`.
    """
    states, head, balance, last = predict_targets(model, batch, hidden=hidden)
    if head is not None:
        facts = chunked_log_probs(
            head, states, batch.target_ids, entropy=entropy, squares=squares, temperature=temperature
        )
    else:
        logits = states if temperature == 1 else states / temperature
        facts, _ = target_facts(logits, batch.target_ids, entropy=entropy, squares=squares)
    return TokenLogProbs(*facts, balance, last)
