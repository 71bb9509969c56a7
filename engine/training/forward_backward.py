"""The forward and backward passes of one step: this rank's micro-batches, then the sums over all ranks."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from ..distributed.process_group import ELSEWHERE
from ..objectives.loss import Batch
from ..runtime.control_flags import Ready
from ..system.memory import first_line, give_back, is_out_of_memory
from ..system.rng import RngState
from .context import Training
from .prefetch import Feed, Portion


@dataclass(frozen=True)
class Passed:
    """What the passes of a step came to, over all ranks. Times are readings of perf_counter.

    `loss` and `extras` are means over the step's target tokens, `grad_norm` is the gradient's length before it was cut.
    """

    portion: Portion
    loss: float
    extras: dict[str, float | None]
    grad_norm: float
    data_seconds: float
    begun: float
    done: float


@dataclass(frozen=True)
class NoMemory:
    """Memory ran out in a pass, here or on another rank; gradients are dropped, the random state is put back."""

    problem: str


class Passes:
    """Makes the gradients of a step: the sum over all its micro-batches and ranks, divided by its target tokens."""

    def __init__(self, training: Training, feed: Feed) -> None:
        self._training = training
        self._feed = feed
        self._weights = [w for group in training.optimizer.param_groups for w in group["params"]]

    def run(self, number: int, size: int, scale: float, boundary: RngState) -> Passed | NoMemory:
        """Step `number` in micro-batches of `size` rows, the loss multiplied by `scale` in the backward pass.

        `boundary` is the random state at the step's start.

        Raises:
            Leave: between two micro-batches; `boundary` is that of the last finished step.
        """
        training = self._training
        portion, data_seconds = self._feed.take(number, size)
        self._feed.expect(number + 1, size)
        begun, problem = time.perf_counter(), ""
        try:
            loss, extras = self._forward_backward(portion, scale)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        # Only here the traceback is gone, and with it all that it kept alive.
        if training.ranks.any(problem != ""):
            return self._no_memory(problem or ELSEWHERE, boundary)
        loss, extras = self._over_all_ranks(loss, extras)
        if problem := training.ranks.add_gradients(self._weights):
            return self._no_memory(problem, boundary)
        weight = portion.num_target_tokens
        extras = {name: value / weight for name, value in extras.items()}
        norm = cut(self._weights, scale, self._training.profile.train.max_grad_norm)
        return Passed(portion, loss / weight, dict(extras), norm, data_seconds, begun, time.perf_counter())

    def _no_memory(self, problem: str, boundary: RngState) -> NoMemory:
        device = self._training.hardware.device
        self._training.optimizer.zero_grad(set_to_none=True)
        boundary.restore(device)
        give_back(device)
        return NoMemory(problem)

    def _forward_backward(self, portion: Portion, scale: float) -> tuple[float, dict[str, float]]:
        """Sums of the loss and of the extras over this rank's micro-batches."""
        training = self._training
        total = torch.zeros((), device=training.hardware.device)
        sums: dict[str, torch.Tensor] = {}
        for micro_step, batch in enumerate(portion.batches, start=1):
            if training.ranks.size == 1:  # several act between steps only: the others would wait for this one's part
                training.control.poll(Ready.ALL)
            there = batch.to(training.hardware.device)
            loss, extras = learn(training.module, there, portion.num_target_tokens, scale)
            total += loss
            for name, value in extras.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
            training.logbook.progress(micro_step=micro_step)
        return float(total), {name: float(value) for name, value in sums.items()}

    def _over_all_ranks(self, loss: float, extras: dict[str, float]) -> tuple[float, dict[str, float]]:
        ranks = self._training.ranks
        if ranks.size == 1:
            return loss, extras
        told = [json.loads(data) for data in ranks.gather(json.dumps([loss, extras]).encode())]
        names = {name for _, its in told for name in its}
        return sum(its for its, _ in told), {name: sum(its.get(name, 0.0) for _, its in told) for name in sorted(names)}


def learn(module: Module, batch: Batch, num_target_tokens: int, scale: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Add a micro-batch's part to the gradients of a step that has so many target tokens; its loss and extras.

    With this function's end the graph is gone: bitsandbytes and our own loss keep tensors in it that outlive the
    backward pass, and the next micro-batch must not find them there.
    """
    loss, _, extras = module(batch)
    mean = loss / num_target_tokens
    (mean if scale == 1 else mean * scale).backward()
    return loss.detach(), {name: value.detach() for name, value in extras.items()}


def cut(weights: Sequence[Parameter], scale: float, longest: float | None) -> float:
    """Cut the gradients' length to `longest`, after dividing them by `scale`; the length before the cut."""
    if scale != 1:
        grads = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_mul_(grads, 1 / scale)
    return float(torch.nn.utils.clip_grad_norm_(weights, math.inf if longest is None else longest))
