"""A model of which each rank holds its own rows of every large tensor (`hardware.shard`).

With `hardware.dp_shard_size` neighbouring ranks divide it in groups of that size, a mesh of two dimensions (HSDP): what
is gathered comes from the group, and gradients of what is divided are summed in it and then over the groups.

A decoder layer is gathered as it computes and let go of afterwards, forward and backward (torch's `fully_shard`);
embeddings and head are gathered in each use. Beside a frozen base the adapter, norms outside the layers and
constants of quantisation are whole on every rank, so that gradients, optimizer and checkpoints are those of an
unsharded run. In full fine-tuning all weights, their gradients and the optimizer's state are divided.

To gather a tensor takes all ranks. Where only rank 0 computes (evaluations, samples, chats), each of its passes is
ordered on the others, who run one over a single token at the same time: `Action.FORWARD`. Where all compute, the ranks
with fewer micro-batches fill up with such passes.

Where memory runs out in a pass that rank 0 makes alone, or in one that only goes forward, the others wait for what is
still to be gathered. Every pass gathers the same in the same order, which is known from a first one: the rank gathers
the rest, and tries a smaller pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial

from ftui.supervisor.engine_process import RankLostError

from ..system.memory import first_line, is_out_of_memory, no_memory, within_memory
from ..system.rng import RngState
from .process_group import Action, ProcessGroup, RankCommand
from .rank_clock import CountedGather, RankClock

if TYPE_CHECKING:
    from ..models.model_parts import ModelParts

T = TypeVar("T")


class PassOrder:
    """What the pass in progress has gathered so far, and what a whole one gathers, in its order.

    Attributes:
        is_torn: memory ran out as weights beside the layers were gathered: nobody knows whether they were sent.
    """

    def __init__(self) -> None:
        self._whole: list[Callable[[], object]] = []
        self._done: list[Callable[[], object]] = []
        self.is_torn = False

    def begin(self) -> None:
        """A pass begins."""
        self._done, self.is_torn = [], False

    def note(self, again: Callable[[], object]) -> None:
        """Something was gathered; `again` gathers it and lets go of it."""
        self._done.append(again)

    def learn(self) -> None:
        """The pass that has just ended was a whole one."""
        self._whole = self._done

    def rest(self) -> list[Callable[[], object]]:
        """What is still to be gathered in the pass in progress."""
        return self._whole[len(self._done) :]


class ShardedBase:
    """What the ranks do together for a base of which each has a part.

    Attributes:
        is_alone: rank 0 computes alone, and orders each of its passes on the others.
        clock: has the time in which parts are gathered, as far as it can be told from that of the passes.

    Args:
        decoder: the stack of layers with its embeddings; its forward is part of every pass.
        ends: embeddings, head and small modules beside the layers, as far as they are sharded.
        head: the one of `ends` that gives the logits.
    """

    def __init__(
        self,
        decoder: nn.Module,
        ends: list[nn.Module],
        head: nn.Module | None,
        ranks: ProcessGroup,
        device: torch.device,
    ) -> None:
        self.decoder, self.head = decoder, head
        self._ranks = ranks
        self.is_trained = any(weight.requires_grad for weight in decoder.parameters())
        self.is_alone = False
        self.clock = RankClock(device, is_needed=ranks.size > 1)
        self._order = PassOrder()
        for layer in _divided_layers(decoder):
            if device.type == "cpu" and hasattr(layer, "set_custom_all_gather"):  # since torch 2.8
                layer.set_custom_all_gather(cast(Any, CountedGather(self.clock)))
            again = partial(_gather_layer, layer)
            cast(nn.Module, layer).register_forward_pre_hook(lambda *_, again=again: self._order.note(again))
        for end in dict.fromkeys(ends):  # twice gathered would be never let go
            end.__dict__["pass_order"] = self._order
            end.register_forward_pre_hook(self._gather_weights)
            end.register_forward_hook(_drop_weights, always_call=True)
        decoder.register_forward_pre_hook(self._call_others)
        decoder.register_forward_hook(_let_go, always_call=True)

    def lead(self, parts: "ModelParts") -> None:
        """On rank 0: from now on it computes alone, and the others wait for its orders."""
        self._ranks.order(RankCommand(Action.FORWARD))
        fill_up(parts, 1, backward=False)
        self.is_alone = True

    def learn_order(self) -> None:
        """The pass that has just ended gathered what each does that goes forward only."""
        self._order.learn()

    def finish_pass(self) -> bool:
        """Gather what is left of a pass that broke off, for which the other ranks wait; all of it has been let go of.

        False where that cannot be: it is not known what is left, or this torch has no way back from such a pass.
        """
        reset = getattr(self.decoder, "reset_iter_state", None)  # since torch 2.13
        if self._order.is_torn or reset is None:
            return False
        with torch.no_grad(), naming_lost_ranks():
            for gather in self._order.rest():
                gather()
        reset()
        return True

    def _call_others(self, module: nn.Module, arguments: Any) -> None:
        self._order.begin()
        if self.is_alone:
            self._ranks.order(RankCommand(Action.FORWARD))

    def _gather_weights(self, module: nn.Module, arguments: Any) -> None:
        own: Any = {name: weight for name, weight in module._parameters.items() if isinstance(weight, DTensor)}
        module.__dict__["sharded_weights"] = own
        with self.clock.exchange():
            module._parameters.update(cast(Any, gather_weights(module)))


@contextmanager
def together(parts: "ModelParts") -> Iterator[None]:
    """A block in which all ranks make equally many passes, nobody ordering them.

    Raises:
        RankLostError: another rank is gone, which a pass over a sharded base notices.
    """
    base = parts.base
    if base is None:
        yield
        return
    was_alone, base.is_alone = base.is_alone, False
    try:
        with naming_lost_ranks():
            yield
    finally:
        base.is_alone = was_alone


@contextmanager
def alone(parts: "ModelParts") -> Iterator[None]:
    """A block of passes of rank 0 in an evaluation or an answer.

    Raises:
        GpuMemoryError, HostMemoryError: as `within_shared_memory` cannot make up for.
    """
    try:
        yield
    except RuntimeError as error:
        if parts.base is None or not is_out_of_memory(error):
            raise
        place = f"a pass of an evaluation or an answer, in which the other ranks wait ({first_line(error)})"
        raise no_memory(parts.device, place, "Lower eval.per_device_eval_batch_size.") from error


def within_shared_memory(base: ShardedBase | None, work: Callable[[], T]) -> tuple[T | None, str]:
    """As `within_memory`, for passes that only go forward, over a base that ranks share (`None`: over its own).

    Raises:
        RuntimeError: memory ran out where the pass cannot be finished: the others go on waiting in it.
    """
    result, problem = within_memory(work)
    if problem and base is not None and not base.finish_pass():
        raise torch.OutOfMemoryError(f"out of memory: {problem}")
    return result, problem


def fill_up(parts: "ModelParts", number: int, *, backward: bool) -> None:
    """Take part in so many passes of other ranks, where the base is sharded: with one token, without a gradient."""
    if parts.base is None:
        return
    for _ in range(number):
        _pass_nothing(parts, parts.base, backward=backward)
        if not backward:
            parts.base.learn_order()


def _pass_nothing(parts: "ModelParts", base: ShardedBase, *, backward: bool) -> None:
    """Random generators stay where they are. What is trained is in its usual mode, so that layers are gathered in the
    same order as where activations are computed again."""
    was_training, random = base.decoder.training, RngState.capture(parts.device)
    ids = torch.zeros(1, 1, dtype=torch.int64, device=parts.device)
    base.decoder.train(was_training and base.is_trained)
    try:
        with together(parts), torch.set_grad_enabled(backward), parts.autocast():
            hidden = base.decoder(input_ids=ids, use_cache=False)[0]
            result = hidden.sum()
            for head in () if base.head is None else gather_weights(base.head).values():
                result = result + head.sum() if head.requires_grad else result
        if backward:
            (result * 0).backward()
    finally:
        base.decoder.train(was_training)
        random.restore(parts.device)


def gather_weights(module: nn.Module) -> dict[str, Tensor]:
    """All of a module's own weights by name. Those that are divided are gathered, and noted as part of the pass."""
    order: PassOrder | None = module.__dict__.get("pass_order")
    weights: dict[str, Tensor] = {}
    for name, weight in module._parameters.items():
        if weight is None:
            continue
        if order is None or not isinstance(weight, DTensor):
            weights[name] = whole(weight)
            continue
        order.is_torn = True
        weights[name] = whole(weight)
        order.is_torn = False
        order.note(partial(whole, weight))
    return weights


def whole(weight: Tensor) -> Tensor:
    """All of a weight: where each rank has its own rows, they are gathered, which all ranks must do at once.

    Of a trained one the gradient is summed over the ranks as it is divided again.
    """
    if not isinstance(weight, DTensor):
        return weight
    summed = [Partial()] * weight.device_mesh.ndim if weight.requires_grad else None
    return weight.full_tensor(grad_placements=summed)


def own_part(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor, without a copy."""
    return cast(DTensor, tensor.detach()).to_local() if isinstance(tensor, DTensor) else tensor


def _let_go(decoder: nn.Module, arguments: Any, output: Any) -> None:
    """Divide again what a forward pass has gathered and no backward pass will."""
    if not torch.is_grad_enabled():
        for layer in _divided_layers(decoder):
            layer.reshard()


def _divided_layers(decoder: nn.Module) -> Iterator[FSDPModule]:
    return (module for module in decoder.modules() if isinstance(module, FSDPModule) and module is not decoder)


def _gather_layer(layer: FSDPModule) -> None:
    """One that was sent already, and did not fit where it was put together, is not sent twice."""
    layer.unshard()
    layer.reshard()


def _drop_weights(module: nn.Module, arguments: Any, output: Any) -> None:
    module._parameters.update(module.__dict__.pop("sharded_weights", {}))


@contextmanager
def naming_lost_ranks() -> Iterator[None]:
    """A block in which torch's errors of a broken connection, from inside a pass, are `RankLostError`."""
    try:
        yield
    except RuntimeError as error:
        is_connection = isinstance(error, dist.DistBackendError) or "gloo" in str(error)
        if not is_connection or is_out_of_memory(error):
            raise
        raise RankLostError(first_line(error)) from error
