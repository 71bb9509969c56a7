"""What other ranks send rank 0 before a checkpoint: their random generators, and that their weights are the same."""

import hashlib
import json
from typing import Any

import torch
from safetensors.torch import load
from torch.distributed.tensor import DTensor

from ftui.errors import FtuiError

from ..models.model_parts import ModelParts
from ..models.weights import safetensors_file, trainable
from ..system.rng import RngState
from .process_group import Action, ProcessGroup, RankCommand

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode_rank_state(parts: ModelParts) -> bytes:
    """This rank's random state as a safetensors file; the digest of its weights stands in the metadata."""
    rng = RngState.capture(parts.device)
    metadata = {"plain": json.dumps(rng.plain()), "weights": weights_digest(parts.model)}
    return b"".join(safetensors_file(rng.tensors(), metadata)())


def gather_rank_states(ranks: ProcessGroup, parts: ModelParts, step: int) -> dict[int, bytes]:
    """The states of all other ranks, by rank; to be called by rank 0 between two steps.

    Raises:
        FtuiError: a rank's weights are not those of rank 0 (a bug, or a broken GPU): nothing would be worth saving.
    """
    if ranks.size == 1:
        return {}
    ranks.order(RankCommand(Action.SEND_STATE))
    leader, *others = ranks.gather(encode_rank_state(parts))
    for rank, data in enumerate(others, start=1):
        if _metadata(data)["weights"] != _metadata(leader)["weights"]:
            raise FtuiError(f"The weights of rank {rank} are not those of rank 0 after step {step}.")
    return dict(enumerate(others, start=1))


def decode_random_state(data: bytes) -> RngState:
    """The random state in what `encode_rank_state` made."""
    return RngState.rebuild(load(data), json.loads(_metadata(data)["plain"]))


def _metadata(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")  # a safetensors file begins with the length of its JSON header
    metadata: dict[str, Any] = json.loads(data[8 : 8 + length])["__metadata__"]
    return metadata


def weights_digest(model: Any) -> str:
    """SHA-256 over the sums of each trained tensor's bits: the same for bit-identical weights, without moving them.

    Of what is divided no two ranks have the same rows. In full fine-tuning with `hardware.shard` that is all that is
    trained, norms and biases too: then nothing is compared, and the digest is that of no weights.
    """
    weights = [weight.detach().contiguous() for weight in trainable(model).values() if not isinstance(weight, DTensor)]
    sums = [weight.view(BITS[weight.element_size()]).sum(dtype=torch.int64) for weight in weights]
    return hashlib.sha256(torch.stack(sums).cpu().numpy().tobytes() if sums else b"").hexdigest()
