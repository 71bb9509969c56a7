"""What each rank has a part of, brought together one tensor at a time: a checkpoint of it has one form for any number
of ranks, and no rank ever has more than the largest tensor beside its own parts.

Rank 0 writes. For each tensor it orders the others to take part (`Action.GATHER`); the number in the order is the
tensor's place in a list that is the same on all ranks.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..models.model_parts import ModelParts
from .process_group import Action, ProcessGroup, RankCommand
from .sharded_base import own_part, whole


def list_shards(parts: ModelParts) -> list[DTensor]:
    """The trained weights and the optimizer's moments of which this rank has a part: the same list on all ranks.

    What is frozen is in no checkpoint.
    """
    weights = [weight for weight in parts.model.parameters() if weight.requires_grad]
    groups = parts.optimizer.param_groups
    states = [parts.optimizer.state.get(weight, {}) for group in groups for weight in group["params"]]
    moments = [state[name] for state in states for name in sorted(state)]
    return [tensor for tensor in (*weights, *moments) if isinstance(tensor, DTensor)]


def gather_one(parts: ModelParts, number: int) -> None:
    """On the other ranks: take part in what rank 0 gathers."""
    whole(list_shards(parts)[number].detach())


def gatherer(parts: ModelParts, ranks: ProcessGroup) -> Callable[[Tensor], Tensor] | None:
    """On rank 0, between two steps: what makes a whole tensor of one in `list_shards`; `None` where none is divided."""
    places = {own_part(tensor).data_ptr(): number for number, tensor in enumerate(list_shards(parts))}
    if not places:
        return None

    def gather(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        ranks.order(RankCommand(Action.GATHER, places[own_part(tensor).data_ptr()]))
        return whole(tensor)

    return gather


def total_norm(grads: list[Tensor], ranks: ProcessGroup) -> Tensor:
    """The length of all gradients together, a scalar on the device: what is divided, over all ranks."""
    own = [own_part(grad) for grad in grads if isinstance(grad, DTensor)]
    squares = torch.nn.utils.get_total_norm(own).square()
    ranks.add(squares)
    if meshes := [grad.device_mesh for grad in grads if isinstance(grad, DTensor)]:
        squares /= meshes[0].size() // meshes[0].size(meshes[0].ndim - 1)  # each group has all of them
    rest = torch.nn.utils.get_total_norm([grad for grad in grads if not isinstance(grad, DTensor)])
    return (squares + rest.to(squares.device).square()).sqrt()
