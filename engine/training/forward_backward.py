"""The forward and backward passes of one step: this rank's micro-batches, then the sums over all ranks."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter
from torch.profiler import record_function

from ..distributed.gather_shards import total_norm
from ..distributed.process_group import ELSEWHERE, ProcessGroup
from ..distributed.rank_clock import RankClock, RankTime
from ..distributed.sharded_base import fill_up, own_part, together
from ..ledger.ledger_file import NO_ROWS, ROW, sort_rows
from ..ledger.row_losses import make_rows
from ..models.model_parts import ModelParts
from ..objectives import Loss, add_up
from ..objectives.loss import Batch
from ..profile_step.marks import BACKWARD, FORWARD, UPDATE
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.memory import release_cached_memory, within_memory
from ..system.rng import RngState
from .divergence import sum_log_ratios
from .prefetch import StepBatches, StepSource


@dataclass(frozen=True)
class StepGradients:
    """The result of a step's passes over all ranks. Times are readings of perf_counter (seconds).

    `extras` are means, as `Objective.per` says; `grad_norm` is the gradient's length before clipping. `ranks`: the
    times of all ranks, by rank; empty where there is one. `rows`: the losses of its rows, where they are kept.
    """

    batches: StepBatches
    loss: float
    extras: dict[str, float | None]
    grad_norm: float
    data_seconds: float
    start: float
    end: float
    ranks: list[RankTime]
    rows: np.ndarray


@dataclass(frozen=True)
class MemoryShortage:
    """Memory ran out in a pass, here or on another rank; gradients are dropped, the random state is put back.

    `is_final`: the others wait inside that pass for this rank's part of the base, so that the attempt must end.
    """

    problem: str
    is_final: bool = False


@dataclass(eq=False)
class ForwardBackward:
    """Makes the gradients of a step: sums over all its micro-batches and ranks, divided by the step's amounts.

    `keeps_rows`: the loss of each row is read from the device, too.
    """

    parts: ModelParts
    ranks: ProcessGroup
    source: StepSource
    max_grad_norm: float | None
    control: Control
    events: EventWriter
    keeps_rows: bool = False

    def __post_init__(self) -> None:
        self._weights = [w for group in self.parts.optimizer.param_groups for w in group["params"]]
        self._whole = [weight for weight in self._weights if not isinstance(weight, DTensor)]
        base = self.parts.base
        self._clock = RankClock(self.parts.device, is_needed=self.ranks.size > 1) if base is None else base.clock

    def run(self, step: int, size: int, scale: float, boundary: RngState) -> StepGradients | MemoryShortage:
        """The gradients of a step in micro-batches of `size` rows; the loss is multiplied by `scale` before its
        backward pass. `boundary` is the random state at the step's start.

        Raises:
            Shutdown: between two micro-batches; `boundary` is that of the last finished step.
        """
        batches, data_seconds = self.source.get(step, size)
        self.source.start(step + 1, size)
        self._clock.begin()
        start, away_before, divergence = time.perf_counter(), self.control.away_seconds, 0.0
        if batches.mismatched is not None:
            ratios, problem = within_memory(partial(self._sum_log_ratios, batches, batches.mismatched))
            with self._clock.exchange():
                if self._is_short(problem):
                    return self._out_of_memory(problem or ELSEWHERE, boundary, in_pass=True)
                [sums_of_ratios], _, _ = self._sum_over_ranks([{"ratios": ratios or 0.0}])
            divergence = sums_of_ratios["ratios"] / batches.amounts["examples"]
        passed, problem = within_memory(partial(self._forward_backward, batches, scale, divergence))
        with self._clock.exchange():
            if self._is_short(problem):
                return self._out_of_memory(problem or ELSEWHERE, boundary, in_pass=True)
            if problem := self.ranks.add_gradients(self._whole):
                return self._out_of_memory(problem, boundary)
        assert passed is not None, "where memory ran out there is a problem"
        norm = clip_gradients(self._weights, scale, self.max_grad_norm, self.ranks)
        sums, metrics, each = passed
        groups, losses_of = read_values([sums, metrics, {"grad_norm": norm}], each)  # the one wait for the device
        *own, length = groups
        per, amounts = self.parts.objective.per, batches.amounts
        rows = make_rows(per, losses_of, batches.sequences, batches.num_targets, amounts)
        start += self.control.away_seconds - away_before  # what stood still was no part of the step
        time_here = self._clock.read(time.perf_counter() - start, data_seconds, batches.num_places)
        (losses, others), times, rows = self._sum_over_ranks(own, time_here, rows)
        loss, means = mean_of(losses, amounts), self.parts.objective.means(others, amounts) | dict(batches.facts)
        end = time.perf_counter()
        return StepGradients(batches, loss, means, length["grad_norm"], data_seconds, start, end, times, rows)

    def _is_short(self, problem: str) -> bool:
        """Whether memory ran out on any rank. Where the base is sharded, the others wait inside their own pass."""
        return problem != "" if self.parts.base is not None else self.ranks.any(problem != "")

    def _out_of_memory(self, problem: str, boundary: RngState, *, in_pass: bool = False) -> MemoryShortage:
        self.parts.optimizer.zero_grad(set_to_none=True)
        boundary.restore(self.parts.device)
        release_cached_memory(self.parts.device)
        return MemoryShortage(problem, is_final=in_pass and self.parts.base is not None)

    def _forward_backward(
        self, batches: StepBatches, scale: float, divergence: float
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], list[dict[str, Tensor]]]:
        """Sums of the losses and of the metrics over this rank's micro-batches, on the device; and what the losses of
        each micro-batch are made of, where rows are kept."""
        sums: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        each: list[dict[str, Tensor]] = []
        with together(self.parts):
            for micro_step, batch in enumerate(batches.batches, start=1):
                if self.ranks.size == 1:  # several act between steps only: the others would wait for this one's part
                    self.control.poll(RequestLevel.ALL)
                on_device = replace(batch, divergence=divergence).to(self.parts.device)
                loss = backpropagate(self.parts.module, on_device, batches.amounts, scale)
                add_up(sums, loss.sums)
                add_up(metrics, loss.metrics)
                if self.keeps_rows:
                    each.append(loss.each)
                self.events.progress(micro_step=micro_step)
            fill_up(self.parts, batches.num_missing, backward=True)
        return sums, metrics, each

    def _sum_log_ratios(self, batches: StepBatches, mismatched: Sequence[Batch]) -> float:
        with together(self.parts):
            ratios = sum_log_ratios(self.parts, mismatched)
            fill_up(self.parts, batches.num_missing, backward=False)
        return ratios

    def _sum_over_ranks(
        self, groups: list[dict[str, float]], own: RankTime | None = None, rows: np.ndarray = NO_ROWS
    ) -> tuple[list[dict[str, float]], list[RankTime], np.ndarray]:
        """Groups of sums, each over all ranks; their times, if they have any to tell; the rows of all, by number."""
        if self.ranks.size == 1:
            return groups, [], rows
        sent = json.dumps([groups, own]).encode() + b"\n" + rows.tobytes()
        received = [data.partition(b"\n") for data in self.ranks.gather(sent)]
        each = [json.loads(text) for text, _, _ in received]
        sums = [_sum_each(of_ranks) for of_ranks in zip(*(groups for groups, _ in each), strict=True)]
        times = [RankTime(*times) for _, times in each if times is not None]
        return sums, times, sort_rows([np.frombuffer(data, ROW) for _, _, data in received])


def _sum_each(of_ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    """The sum of each value; a rank without rows has fewer of them."""
    names = sorted({name for own in of_ranks for name in own})
    return {name: sum(own.get(name, 0.0) for own in of_ranks) for name in names}


def read_sums(*groups: dict[str, Tensor]) -> list[dict[str, float]]:
    """The values of groups of scalars, in one copy from the device: the host waits for it here."""
    return read_values(groups, [])[0]


def read_values(
    groups: Sequence[dict[str, Tensor]], each: Sequence[dict[str, Tensor]]
) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
    """The values of groups of scalars, and vectors (float32) joined by their names, all in one copy."""
    scalars = [value.float() for sums in groups for value in sums.values()]
    vectors = {name: [own[name].float() for own in each] for name in (each[0] if each else {})}
    parts = [*([torch.stack(scalars)] if scalars else []), *(part for own in vectors.values() for part in own)]
    read = torch.cat(parts).numpy(force=True) if parts else np.zeros(0, np.float32)
    values = iter(read[: len(scalars)].tolist())
    sums = [{name: next(values) for name in group} for group in groups]
    ends = np.cumsum([len(scalars), *(sum(map(len, own)) for own in vectors.values())])
    return sums, dict(zip(vectors, np.split(read, ends)[1:], strict=False))


def mean_of(sums: dict[str, float], amounts: dict[str, int]) -> float:
    """The loss of which these are the sums, by what each is divided by."""
    return sum(value / amounts[name] for name, value in sums.items())


def backpropagate(module: Module, batch: Batch, amounts: dict[str, int], scale: float) -> Loss:
    """Add a micro-batch's part to the gradients of a step that has these amounts; its loss, detached.

    With this function's end the graph is gone: bitsandbytes and our own loss keep tensors in it that outlive the
    backward pass, and the next micro-batch must not find them there.
    """
    with record_function(FORWARD):
        loss: Loss = module(batch)
        mean = reduce(add, (value / amounts[name] for name, value in loss.sums.items()))
    with record_function(BACKWARD):
        (mean if scale == 1 else mean * scale).backward()
    return replace(loss, sums={name: value.detach() for name, value in loss.sums.items()})


def clip_gradients(
    weights: Sequence[Parameter], scale: float, max_norm: float | None, ranks: ProcessGroup | None = None
) -> Tensor:
    """Divide the gradients by `scale` and clip their length to `max_norm` (`None`: not at all).

    Where ranks have parts of the weights it is the length of all of them.

    Returns the length before, a scalar on the device: nothing here waits for it.
    """
    with record_function(UPDATE):
        grads = [weight.grad for weight in weights if weight.grad is not None]
        own = [own_part(grad) for grad in grads]
        if scale != 1:
            torch._foreach_mul_(own, 1 / scale)
        if ranks is not None and any(isinstance(grad, DTensor) for grad in grads):
            norm = total_norm(grads, ranks)
            if max_norm is not None:
                torch._foreach_mul_(own, (max_norm / (norm + 1e-6)).clamp(max=1.0))
            return norm
        norm = torch.nn.utils.get_total_norm(grads)
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(weights, max_norm, norm)
    return norm
