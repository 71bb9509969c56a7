"""The loss of a batch as one number."""

from torch import Tensor, nn

from ftui.engine.objectives.loss import Batch, cross_entropy


def summed_loss(model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """Sum over the batch's targets, in nats."""
    return cross_entropy(model, batch, label_smoothing).loss
