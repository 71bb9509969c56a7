"""One optimizer update over all micro-batches of a step: its loss is the sum over its whole weight.

Memory that runs out in the forward or backward pass costs time, never data: the step is taken again from its start in
micro-batches of half the rows. A step is never skipped.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch.profiler import record_function

from ftui.errors import NonFiniteError
from ftui.profile.schema import Profile
from ftui.runs.events import MicroBatchChanged, Step
from ftui.supervisor.engine_process import RankLostError

from ..distributed.process_group import ELSEWHERE, Action, ProcessGroup, RankCommand
from ..distributed.stragglers import Stragglers, seconds_by_rank
from ..health.watch import HealthWatch
from ..models.model_parts import ModelParts
from ..optim.learning_rate import LearningRate
from ..optim.loss_scaler import after_step
from ..planning.curriculum_plan import RunPlan
from ..profile_step.marks import UPDATE
from ..runtime.event_writer import EventWriter
from ..system.memory import UpdateMemoryError, first_line, is_out_of_memory, no_memory, used_bytes
from ..system.rng import RngState
from ..system.train_state import MICRO_BATCH, TrainState
from .forward_backward import ForwardBackward, MemoryShortage, StepGradients
from .triggers import epoch_at

SMALLER = "Shorten data.max_length, set train.activation_checkpointing = true, or take a larger GPU."


@dataclass(eq=False)
class StepRunner:
    """Takes steps: gradients, the optimizer's update, the record."""

    profile: Profile
    plan: RunPlan
    parts: ModelParts
    state: TrainState
    ranks: ProcessGroup
    events: EventWriter
    passes: ForwardBackward
    watch: HealthWatch | None = None

    def __post_init__(self) -> None:
        self._learning_rate = LearningRate(self.profile.train, self.plan)
        self._stragglers = Stragglers()

    def run(self, boundary: RngState) -> None:
        """Take the next step; `boundary` is the random state at its start.

        Raises:
            Shutdown: between two micro-batches; the state is that of the last finished step.
            GpuMemoryError, HostMemoryError: not even one row fits.
            NonFiniteError: too many steps in a row with a NaN or infinite loss or gradient.
        """
        step = self.state.step + 1
        try:
            gradients = self._make_gradients(step, boundary)
            rate = self._learning_rate.at(step, self.state)
            applied = math.isfinite(gradients.loss) and math.isfinite(gradients.grad_norm)
            self.ranks.order(RankCommand(Action.APPLY if applied else Action.DROP, step, factor=rate))
            if applied:
                self._apply(step, rate)
            if self.watch is not None:
                self.watch.see_gradients(gradients.grad_norm, rate, applied=applied)
        finally:
            self.parts.optimizer.zero_grad(set_to_none=True)  # a save after an error saves the last boundary
        self._record(step, gradients, rate, applied)

    def _micro_batch(self, step: int) -> int:
        """Rows of a micro-batch in a step."""
        reduced = self.state.value_at(MICRO_BATCH, step)
        size = self.profile.micro_batch
        return size if reduced is None else min(size, int(reduced))

    def _make_gradients(self, step: int, boundary: RngState) -> StepGradients:
        scale = self.state.loss_scale or 1.0
        while True:
            size = self._micro_batch(step)
            self.ranks.order(RankCommand(Action.STEP, step, size, scale))
            result = self._run_passes(step, size, scale, boundary)
            if isinstance(result, StepGradients):
                return result
            if size == 1:
                raise no_memory(self.parts.device, f"one row of step {step} ({result.problem})", SMALLER)
            self._halve(step, size, "the forward or backward pass")
            if result.is_final:
                raise UpdateMemoryError(
                    f"Memory ran out in a pass of step {step}, micro-batches of {size} ({result.problem}): the other "
                    "ranks wait in it for this one's part of the base.",
                    hint=SMALLER,
                )

    def _run_passes(self, step: int, size: int, scale: float, boundary: RngState) -> StepGradients | MemoryShortage:
        try:
            return self.passes.run(step, size, scale, boundary)
        except RankLostError:
            if problem := self.ranks.last_word():
                return MemoryShortage(problem, is_final=True)
            raise

    def _halve(self, step: int, size: int, place: str) -> None:
        """Half the micro-batch from this step on, written down before it counts."""
        record = MicroBatchChanged(step=step, old=size, new=(size + 1) // 2, place=place)
        self.events.write(record, durable=True)
        self.state.replay([record])

    def _apply(self, step: int, rate: float) -> None:
        if problem := update_weights(self.parts.optimizer, self.ranks, rate):
            size = self._micro_batch(step)
            if size > 1:
                self._halve(step, size, "the optimizer's update")
            raise UpdateMemoryError(
                f"Memory ran out in the optimizer's update of step {step}, micro-batches of {size} ({problem}).",
                hint=SMALLER,
            )

    def _record(self, step: int, gradients: StepGradients, rate: float, applied: bool) -> None:
        state, end_of_update, batches = self.state, time.perf_counter(), gradients.batches
        extras, scale = dict(gradients.extras), state.loss_scale
        overflowed = after_step(state, self.parts.hardware.precision, finite=applied)
        if scale is not None:
            extras |= {"loss_scale": scale, "num_overflows": float(state.num_overflows)}
        epoch = epoch_at(self.plan, state, step)
        state.step, state.epoch = step, epoch
        state.num_tokens += batches.num_tokens
        state.num_target_tokens += batches.num_target_tokens
        state.bad_steps = 0 if applied else state.bad_steps + (not overflowed)
        self.events.write_rows(step, gradients.rows)
        seconds = time.perf_counter() - gradients.start + gradients.data_seconds
        record = Step(
            step=step, epoch=epoch, loss=gradients.loss, learning_rate=rate,
            grad_norm=gradients.grad_norm, num_tokens=batches.num_tokens,
            num_target_tokens=batches.num_target_tokens, tokens_per_second=batches.num_tokens / seconds,
            data_seconds=gradients.data_seconds, forward_backward_seconds=gradients.end - gradients.start,
            optimizer_seconds=end_of_update - gradients.end,
            rest_seconds=gradients.start + seconds - gradients.data_seconds - end_of_update,
            memory=used_bytes(self.parts.device), applied=applied, extras=extras,
            ranks=seconds_by_rank(gradients.ranks),
        )  # fmt: skip
        self.events.write_step(record)
        self.events.progress(step=step)
        for message in self._stragglers.look(step, gradients.ranks):
            self.events.warn(message)
        if self.watch is not None:
            self.watch.see_step(record, overflowed=overflowed)
        if state.bad_steps >= self.profile.health.max_bad_steps:
            raise NonFiniteError(
                f"{state.bad_steps} steps in a row up to step {step} had a NaN or infinite loss or gradient.",
                hint="None of them was applied. Lower the learning rate, or check the data of these steps.",
            )


def update_weights(optimizer: torch.optim.Optimizer, ranks: ProcessGroup, rate: float) -> str:
    """Update the weights by their gradients, with this learning rate; why memory ran out, "" where it did not.

    On whichever rank it was: then all have lost their weights, and a checkpoint is what is left.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    problem = ""
    try:
        with record_function(UPDATE):
            optimizer.step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        problem = first_line(error)
    return (problem or ELSEWHERE) if ranks.any(problem != "") else ""
