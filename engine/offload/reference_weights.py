"""The trained weights as a run began, in host memory: what a model is held to that its adapter alone cannot give back.

They change places with the trained ones, piece by piece, for as long as the reference is measured. So it goes through
the very kernels of the model: where both are the same their divergence is 0 to the last bit, and no second model is on
the device.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..distributed.sharded_base import own_part

PIECE_BYTES = 64 << 20
"""What is on the device twice while weights change places."""


class ReferenceWeights:
    """Those of the model as it is now. Of weights that are divided, this rank's part."""

    def __init__(self, model: nn.Module) -> None:
        self._trained = [own_part(weight.data) for weight in model.parameters() if weight.requires_grad]
        self._kept = [weight.to("cpu", copy=True) for weight in self._trained]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which the model has these weights; after it, however it ends, its own to the last bit."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for own, kept in zip(self._trained, self._kept, strict=True):
            for mine, theirs in zip(_pieces(own), _pieces(kept), strict=True):
                brought = theirs.to(mine.device, copy=True)
                theirs.copy_(mine)
                mine.copy_(brought)


def _pieces(weight: Tensor) -> Sequence[Tensor]:
    """Views of it that are small, where it lies in one piece."""
    if not weight.is_contiguous():
        return (weight,)
    size = max(1, PIECE_BYTES // weight.element_size())
    pieces: Sequence[Tensor] = weight.view(-1).split(size)
    return pieces
