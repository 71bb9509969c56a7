"""The stages: each says how rows become a micro-batch and what their loss is."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from .loss import Batch

# (sum of the losses, their weight, named extra sums); the loss of a step is sum / weight over all its micro-batches.
Loss = tuple[Tensor, int, dict[str, Tensor]]


@dataclass(frozen=True)
class Objective:
    """One kind of training: its name and the loss of a micro-batch."""

    name: str
    loss: Callable[[nn.Module, Batch], Loss]


def make_objective(name: str, *, label_smoothing: float = 0.0) -> Objective:
    """The stage of the profile's `run.stage`; `label_smoothing` is `train.label_smoothing_factor`."""
    from . import pretrain, sft

    return {"pretrain": pretrain.stage, "sft": sft.stage}[name](label_smoothing)
