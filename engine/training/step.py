"""One optimizer update over all micro-batches of a step: its loss is the sum over its whole weight.

Memory that runs out in the forward or backward pass costs time, never data: the step is taken again from its start in
micro-batches of half the rows. A step is never skipped.
"""

import math
import time

from ftui.errors import NonFiniteError
from ftui.runs.events import MicroBatchChanged, Step

from ..distributed.process_group import ELSEWHERE, Do, Order
from ..optim.loss_scaler import after_step
from ..optim.plateau import share_left
from ..optim.schedule import learning_rate_curve
from ..runtime.live_overrides import MICRO_BATCH, changed, made_by, value_at
from ..system.memory import UpdateMemoryError, first_line, is_out_of_memory, no_memory, used_bytes
from ..system.rng import RngState
from .context import Training
from .forward_backward import Passed, Passes
from .prefetch import Feed

SMALLER = "Shorten data.max_length, set train.activation_checkpointing = true, or take a larger GPU."


class Update:
    """Takes steps. `boundary` (given to each) is the random state at the step's start."""

    def __init__(self, training: Training, feed: Feed) -> None:
        self._training = training
        self._passes = Passes(training, feed)
        plan = training.prepared.plan
        self._learning_rate = learning_rate_curve(training.profile.train, plan.max_steps, plan.peak)

    def take(self, boundary: RngState) -> None:
        """The next step.

        Raises:
            Leave: between two micro-batches; the state is that of the last finished step.
            GpuMemoryError, HostMemoryError: not even one row fits.
            NonFiniteError: too many steps in a row with a NaN or infinite loss or gradient.
        """
        training, number = self._training, self._training.state.step + 1
        try:
            passed = self._passed(number, boundary)
            rate = self._rate(number)
            applied = math.isfinite(passed.loss) and math.isfinite(passed.grad_norm)
            training.ranks.order(Order(Do.APPLY if applied else Do.DROP, number, factor=rate))
            if applied:
                self._apply(number, rate)
        finally:
            training.optimizer.zero_grad(set_to_none=True)  # whoever saves after an error saves the last boundary
        self._note(number, passed, rate, applied)

    def _rate(self, number: int) -> float:
        state, train = self._training.state, self._training.profile.train
        factor = value_at(state.settings, "learning_rate_factor", number)
        return self._learning_rate(number) * share_left(state, train) * (1.0 if factor is None else factor)

    def micro_batch(self, number: int) -> int:
        """Rows of a micro-batch in step `number`."""
        reduced = value_at(self._training.state.settings, MICRO_BATCH, number)
        size = self._training.profile.train.per_device_train_batch_size
        return size if reduced is None else min(size, int(reduced))

    def _passed(self, number: int, boundary: RngState) -> Passed:
        training = self._training
        scale = training.state.loss_scale or 1.0
        while True:
            size = self.micro_batch(number)
            training.ranks.order(Order(Do.STEP, number, size, scale))
            result = self._passes.run(number, size, scale, boundary)
            if isinstance(result, Passed):
                return result
            if size == 1:
                raise no_memory(training.hardware.device, f"one row of step {number} ({result.problem})", SMALLER)
            self._halve(number, size, "the forward or backward pass")

    def _halve(self, number: int, size: int, place: str) -> None:
        """Half the micro-batch from this step on, written down before it counts."""
        training = self._training
        record = MicroBatchChanged(step=number, old=size, new=(size + 1) // 2, place=place)
        training.logbook.event(record, durable=True)
        for setting in made_by(record):
            training.state.settings = changed(training.state.settings, setting)

    def _apply(self, number: int, rate: float) -> None:
        if problem := apply(self._training, rate):
            size = self.micro_batch(number)
            if size > 1:
                self._halve(number, size, "the optimizer's update")
            raise UpdateMemoryError(
                f"Memory ran out in the optimizer's update of step {number}, micro-batches of {size} ({problem}).",
                hint=SMALLER,
            )

    def _note(self, number: int, passed: Passed, rate: float, applied: bool) -> None:
        training, state = self._training, self._training.state
        updated, portion = time.perf_counter(), passed.portion
        extras: dict[str, float | None] = dict(passed.extras)
        scale = state.loss_scale
        overflowed = after_step(state, training.hardware.precision, finite=applied)
        if scale is not None:
            extras |= {"loss_scale": scale, "num_overflows": float(state.num_overflows)}
        state.step = number
        state.num_tokens += portion.num_tokens
        state.num_target_tokens += portion.num_target_tokens
        state.bad_steps = 0 if applied else state.bad_steps + (not overflowed)
        seconds = time.perf_counter() - passed.begun + passed.data_seconds
        training.logbook.step(
            Step(
                step=number, epoch=training.prepared.plan.epoch_of(number), loss=passed.loss, learning_rate=rate,
                grad_norm=passed.grad_norm, num_tokens=portion.num_tokens,
                num_target_tokens=portion.num_target_tokens, tokens_per_second=portion.num_tokens / seconds,
                data_seconds=passed.data_seconds, forward_backward_seconds=passed.done - passed.begun,
                optimizer_seconds=updated - passed.done,
                rest_seconds=passed.begun + seconds - passed.data_seconds - updated,
                memory=used_bytes(training.hardware.device), applied=applied, extras=extras,
            )
        )  # fmt: skip
        training.logbook.progress(step=number)
        if state.bad_steps >= training.profile.health.max_bad_steps:
            raise NonFiniteError(
                f"{state.bad_steps} steps in a row up to step {number} had a NaN or infinite loss or gradient.",
                hint="None of them was applied. Lower the learning rate, or check the data of these steps.",
            )


def apply(training: Training, rate: float) -> str:
    """Update the weights by their gradients, with this learning rate; why memory ran out, "" where it did not.

    On whichever rank it was: then all have lost their weights, and a checkpoint is what is left.
    """
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    problem = ""
    try:
        training.optimizer.step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        problem = first_line(error)
    return (problem or ELSEWHERE) if training.ranks.any(problem != "") else ""
