"""What other ranks tell rank 0 before a checkpoint: their random generators, and that their weights are the same."""

import hashlib
import json
from typing import Any

import torch
from safetensors.torch import load, save

from ftui.errors import FtuiError

from ..models.weights import trainable
from ..system.rng import RngState
from ..training.context import Training
from .process_group import Do, Order

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def account(training: Training) -> bytes:
    """This rank's random state as a safetensors file; the digest of its weights stands in the metadata."""
    rng = RngState.capture(training.hardware.device)
    return save(rng.tensors(), {"plain": json.dumps(rng.plain()), "weights": weights_digest(training.model)})


def accounts(training: Training) -> dict[int, bytes]:
    """The accounts of all other ranks, by rank; to be asked between two steps.

    Raises:
        FtuiError: a rank's weights are not those of rank 0 (a bug, or a broken GPU): nothing would be worth saving.
    """
    if training.ranks.size == 1:
        return {}
    training.ranks.order(Order(Do.TELL))
    leader, *others = training.ranks.gather(account(training))
    for rank, told in enumerate(others, start=1):
        if _metadata(told)["weights"] != _metadata(leader)["weights"]:
            raise FtuiError(f"The weights of rank {rank} are not those of rank 0 after step {training.state.step}.")
    return dict(enumerate(others, start=1))


def random_state(told: bytes) -> RngState:
    """The random state in an account."""
    return RngState.rebuilt(load(told), json.loads(_metadata(told)["plain"]))


def _metadata(told: bytes) -> dict[str, Any]:
    length = int.from_bytes(told[:8], "little")  # a safetensors file begins with the length of its JSON header
    metadata: dict[str, Any] = json.loads(told[8 : 8 + length])["__metadata__"]
    return metadata


def weights_digest(model: Any) -> str:
    """SHA-256 over the sums of each trained tensor's bits: the same for bit-identical weights, without moving them."""
    digest = hashlib.sha256()
    for weight in trainable(model).values():
        bits = weight.detach().contiguous().view(BITS[weight.element_size()])
        digest.update(int(bits.sum(dtype=torch.int64)).to_bytes(8, "little", signed=True))
    return digest.hexdigest()
