"""Log-probabilities of a batch's targets, for the stages that compare answers."""

from typing import NamedTuple

from torch import Tensor, nn

from .loss import Batch, target_losses


class TokenLogProbs(NamedTuple):
    """(targets,) float32, in the order of `Batch.target_ids`: the natural logarithm of each one's probability."""

    values: Tensor


def target_log_probs(model: nn.Module, batch: Batch) -> TokenLogProbs:
    """The log-probability of each target, with a gradient where autograd is on."""
    return TokenLogProbs(-target_losses(model, batch))
