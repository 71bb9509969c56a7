"""The forward and backward passes of one step: this rank's micro-batches, then the sums over all ranks."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from ..distributed.process_group import ELSEWHERE, ProcessGroup
from ..models.model_parts import ModelParts
from ..objectives.loss import Batch
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.memory import first_line, is_out_of_memory, release_cached_memory
from ..system.rng import RngState
from .prefetch import Prefetcher, StepBatches


@dataclass(frozen=True)
class StepGradients:
    """The result of a step's passes over all ranks. Times are readings of perf_counter (seconds).

    `loss` and `extras` are means over the step's target tokens, `grad_norm` is the gradient's length before clipping.
    """

    batches: StepBatches
    loss: float
    extras: dict[str, float | None]
    grad_norm: float
    data_seconds: float
    start: float
    end: float


@dataclass(frozen=True)
class MemoryShortage:
    """Memory ran out in a pass, here or on another rank; gradients are dropped, the random state is put back."""

    problem: str


@dataclass(eq=False)
class ForwardBackward:
    """Makes the gradients of a step: the sum over all its micro-batches and ranks, divided by its target tokens."""

    parts: ModelParts
    ranks: ProcessGroup
    prefetcher: Prefetcher
    max_grad_norm: float | None
    control: Control
    events: EventWriter

    def __post_init__(self) -> None:
        self._weights = [w for group in self.parts.optimizer.param_groups for w in group["params"]]

    def run(self, step: int, size: int, scale: float, boundary: RngState) -> StepGradients | MemoryShortage:
        """The gradients of a step in micro-batches of `size` rows; the loss is multiplied by `scale` before its
        backward pass. `boundary` is the random state at the step's start.

        Raises:
            Shutdown: between two micro-batches; `boundary` is that of the last finished step.
        """
        batches, data_seconds = self.prefetcher.get(step, size)
        self.prefetcher.start(step + 1, size)
        start, problem = time.perf_counter(), ""
        try:
            loss, extras = self._forward_backward(batches, scale)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        # Only here the traceback is gone, and with it all that it kept alive.
        if self.ranks.any(problem != ""):
            return self._out_of_memory(problem or ELSEWHERE, boundary)
        loss, extras = self._sum_over_ranks(loss, extras)
        if problem := self.ranks.add_gradients(self._weights):
            return self._out_of_memory(problem, boundary)
        weight = batches.num_target_tokens
        means: dict[str, float | None] = {name: value / weight for name, value in extras.items()}
        norm = clip_gradients(self._weights, scale, self.max_grad_norm)
        return StepGradients(batches, loss / weight, means, norm, data_seconds, start, time.perf_counter())

    def _out_of_memory(self, problem: str, boundary: RngState) -> MemoryShortage:
        self.parts.optimizer.zero_grad(set_to_none=True)
        boundary.restore(self.parts.device)
        release_cached_memory(self.parts.device)
        return MemoryShortage(problem)

    def _forward_backward(self, batches: StepBatches, scale: float) -> tuple[float, dict[str, float]]:
        """Sums of the loss and of the extras over this rank's micro-batches."""
        total = torch.zeros((), device=self.parts.device)
        sums: dict[str, torch.Tensor] = {}
        for micro_step, batch in enumerate(batches.batches, start=1):
            if self.ranks.size == 1:  # several act between steps only: the others would wait for this one's part
                self.control.poll(RequestLevel.ALL)
            on_device = batch.to(self.parts.device)
            loss, extras = backpropagate(self.parts.module, on_device, batches.num_target_tokens, scale)
            total += loss
            for name, value in extras.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
            self.events.progress(micro_step=micro_step)
        return float(total), {name: float(value) for name, value in sums.items()}

    def _sum_over_ranks(self, loss: float, extras: dict[str, float]) -> tuple[float, dict[str, float]]:
        if self.ranks.size == 1:
            return loss, extras
        sums = [json.loads(data) for data in self.ranks.gather(json.dumps([loss, extras]).encode())]
        names = sorted({name for _, own in sums for name in own})
        return sum(own for own, _ in sums), {name: sum(own.get(name, 0.0) for _, own in sums) for name in names}


def backpropagate(
    module: Module, batch: Batch, num_target_tokens: int, scale: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add a micro-batch's part to the gradients of a step that has so many target tokens; its loss and extras.

    With this function's end the graph is gone: bitsandbytes and our own loss keep tensors in it that outlive the
    backward pass, and the next micro-batch must not find them there.
    """
    loss, _, extras = module(batch)
    mean = loss / num_target_tokens
    (mean if scale == 1 else mean * scale).backward()
    return loss.detach(), {name: value.detach() for name, value in extras.items()}


def clip_gradients(weights: Sequence[Parameter], scale: float, max_norm: float | None) -> float:
    """Divide the gradients by `scale` and clip their length to `max_norm` (`None`: not at all); the length before."""
    if scale != 1:
        grads = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_mul_(grads, 1 / scale)
    return float(torch.nn.utils.clip_grad_norm_(weights, math.inf if max_norm is None else max_norm))
