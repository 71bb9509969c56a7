"""One optimizer update over all micro-batches of a step: its loss is the sum over its whole weight.

Memory that runs out in the forward or backward pass costs time, never data: the step is taken again from its start in
micro-batches of half the rows. A step is never skipped.
"""

import math
import time
from dataclasses import dataclass

import torch

from ftui.engine.control import Ready
from ftui.engine.feed import Feed
from ftui.engine.heads import Batch
from ftui.engine.memory import UpdateMemoryError, give_back, is_out_of_memory, no_memory, used_bytes
from ftui.engine.optim import learning_rate_curve
from ftui.engine.rng import RngState
from ftui.engine.settings import MICRO_BATCH, changed, made_by, value_at
from ftui.engine.training import Training
from ftui.errors import NonFiniteError
from ftui.events import MicroBatchChanged, Step

SMALLER = "Shorten data.max_length, set train.activation_checkpointing = true, or take a larger GPU."


@dataclass(frozen=True)
class Passed:
    """What the forward and backward passes of a step came to. Times are readings of perf_counter."""

    batches: list[Batch]
    loss: float
    extras: dict[str, float | None]
    grad_norm: float
    data_seconds: float
    begun: float
    done: float


class Update:
    """Takes steps. `boundary` (given to each) is the random state at the step's start."""

    def __init__(self, training: Training, feed: Feed) -> None:
        self._training = training
        self._feed = feed
        self._learning_rate = learning_rate_curve(training.profile.train, training.prepared.plan.max_steps)

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
            if applied:
                self._apply(number, rate)
        finally:
            training.optimizer.zero_grad(set_to_none=True)  # whoever saves after an error saves the last boundary
        self._note(number, passed, rate, applied)

    def _rate(self, number: int) -> float:
        factor = value_at(self._training.state.settings, "learning_rate_factor", number)
        return self._learning_rate(number) * (1.0 if factor is None else factor)

    def micro_batch(self, number: int) -> int:
        """Rows of a micro-batch in step `number`."""
        reduced = value_at(self._training.state.settings, MICRO_BATCH, number)
        size = self._training.profile.train.per_device_train_batch_size
        return size if reduced is None else min(size, int(reduced))

    def _passed(self, number: int, boundary: RngState) -> Passed:
        training = self._training
        while True:
            size = self.micro_batch(number)
            batches, data_seconds = self._feed.take(number, size)
            self._feed.expect(number + 1, size)
            begun = time.perf_counter()
            try:
                loss, extras = self._forward_backward(batches)
                norm = self._gradient_norm()
                return Passed(batches, loss, extras, norm, data_seconds, begun, time.perf_counter())
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).split("\n")[0]
            # Only here the traceback is gone, and with it all that it kept alive.
            training.optimizer.zero_grad(set_to_none=True)
            boundary.restore(training.hardware.device)
            give_back(training.hardware.device)
            if size == 1:
                raise no_memory(training.hardware.device, f"one row of step {number} ({problem})", SMALLER)
            self._halve(number, size, "the forward or backward pass")

    def _halve(self, number: int, size: int, place: str) -> None:
        """Half the micro-batch from this step on, written down before it counts."""
        training = self._training
        record = MicroBatchChanged(step=number, old=size, new=(size + 1) // 2, place=place)
        training.logbook.event(record, durable=True)
        for setting in made_by(record):
            training.state.settings = changed(training.state.settings, setting)

    def _forward_backward(self, batches: list[Batch]) -> tuple[float, dict[str, float | None]]:
        training = self._training
        weight = sum(len(batch.target_ids) for batch in batches)
        total = torch.zeros((), device=training.hardware.device)
        sums: dict[str, torch.Tensor] = {}
        for micro_step, batch in enumerate(batches, start=1):
            training.control.poll(Ready.ALL)
            loss, _, extras = training.module(batch.to(training.hardware.device))
            training.accelerator.backward(loss / weight)
            total += loss.detach()
            for name, value in extras.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value.detach()
            training.logbook.progress(micro_step=micro_step)
        return float(total) / weight, {name: float(value) / weight for name, value in sums.items()}

    def _gradient_norm(self) -> float:
        """Length of the whole step's gradient, cut to max_grad_norm (the length before the cut is returned)."""
        training = self._training
        longest = training.profile.train.max_grad_norm
        weights = [w for group in training.optimizer.param_groups for w in group["params"]]
        return float(training.accelerator.clip_grad_norm_(weights, math.inf if longest is None else longest))

    def _apply(self, number: int, rate: float) -> None:
        training = self._training
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        try:
            training.optimizer.step()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            size = self.micro_batch(number)
            if size > 1:
                self._halve(number, size, "the optimizer's update")
            raise UpdateMemoryError(
                f"Memory ran out in the optimizer's update of step {number}, micro-batches of {size}.", hint=SMALLER
            ) from error

    def _note(self, number: int, passed: Passed, rate: float, applied: bool) -> None:
        training, state = self._training, self._training.state
        updated = time.perf_counter()
        num_tokens = sum(batch.num_tokens for batch in passed.batches)
        num_targets = sum(len(batch.target_ids) for batch in passed.batches)
        state.step = number
        state.num_tokens += num_tokens
        state.num_target_tokens += num_targets
        state.bad_steps = 0 if applied else state.bad_steps + 1
        seconds = time.perf_counter() - passed.begun + passed.data_seconds
        training.logbook.step(
            Step(
                step=number, epoch=training.prepared.plan.epoch_of(number), loss=passed.loss, learning_rate=rate,
                grad_norm=passed.grad_norm, num_tokens=num_tokens, num_target_tokens=num_targets,
                tokens_per_second=num_tokens / seconds, data_seconds=passed.data_seconds,
                forward_backward_seconds=passed.done - passed.begun, optimizer_seconds=updated - passed.done,
                rest_seconds=passed.begun + seconds - passed.data_seconds - updated,
                memory=used_bytes(training.hardware.device), applied=applied, extras=passed.extras,
            )
        )  # fmt: skip
        training.logbook.progress(step=number)
        if state.bad_steps >= training.profile.health.max_bad_steps:
            raise NonFiniteError(
                f"{state.bad_steps} steps in a row up to step {number} had a NaN or infinite loss or gradient.",
                hint="None of them was applied. Lower the learning rate, or check the data of these steps.",
            )
