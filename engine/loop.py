"""The loop: steps, and between two steps whatever is due (evaluation, checkpoint, the end)."""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from ftui.engine.checkpoint import Keeper
from ftui.engine.collate import collate
from ftui.engine.evaluate import evaluate
from ftui.engine.heads import Batch
from ftui.engine.memory import used_bytes
from ftui.engine.optim import learning_rate_curve
from ftui.engine.rng import RngState
from ftui.engine.training import Training
from ftui.errors import NonFiniteError
from ftui.events import Step


class Loop:
    """Runs a training from its state's step to the end. `boundary`: the random state after the last finished step."""

    def __init__(self, training: Training, keeper: Keeper) -> None:
        self.training = training
        self.keeper = keeper
        self.boundary = RngState.capture(training.hardware.device)
        self._learning_rate = learning_rate_curve(training.profile.train, training.prepared.plan.max_steps)

    def run(self) -> str:
        """Train to the end; returns why it ended, in words.

        Raises:
            Preempted: SIGTERM arrived; `boundary` and the state are those of the last finished step.
            NonFiniteError: too many steps in a row with a NaN or infinite loss or gradient.
        """
        training, state = self.training, self.training.state
        last = training.prepared.plan.max_steps
        for batches, seconds in self._feed(state.step + 1, last):
            if reason := self._between_steps():
                return reason
            training.logbook.phase("training")
            self._step(batches, seconds)
            self.boundary = RngState.capture(training.hardware.device)
        return self._between_steps() or f"all {last} steps are done"

    def _feed(self, first: int, last: int) -> Iterator[tuple[list[Batch], float]]:
        """The micro-batches of each step, made in a thread during the step before, and the seconds waited for them."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed") as thread:
            coming = thread.submit(self._micro_batches, first)
            for step in range(first, last + 1):
                begun = time.perf_counter()
                batches = coming.result()
                seconds = time.perf_counter() - begun
                if step < last:
                    coming = thread.submit(self._micro_batches, step + 1)
                yield batches, seconds

    def _micro_batches(self, step: int) -> list[Batch]:
        prepared = self.training.prepared
        rows, train = prepared.plan.step(step), prepared.train
        size = self.training.profile.train.per_device_train_batch_size
        pad = int(prepared.tokenizer.pad_token_id or 0)
        cut = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [collate([[train.sequences[int(train.indices[i])] for i in row] for row in part], pad) for part in cut]

    def _between_steps(self) -> str | None:
        """Evaluate and save where due; the reason to end, if any. A resumed run may do it again for its step."""
        training, state = self.training, self.training.state
        training.control.poll()
        tags = [tag for tag, due in (("periodic", self._save_is_due()), ("last", self._is_last())) if due]
        if self._evaluation_is_due() and evaluate(training).best:
            tags.append("best")
        if tags:
            self.keeper.save(self.boundary, *tags)
        self.keeper.settle(wait=False)
        patience = training.profile.eval.early_stopping_patience
        if patience is not None and state.bad_evaluations >= patience:
            return f"no better evaluation in {state.bad_evaluations} in a row (early stopping)"
        return None

    def _is_last(self) -> bool:
        return self.training.state.step == self.training.prepared.plan.max_steps

    def _save_is_due(self) -> bool:
        section, step = self.training.profile.checkpoint, self.training.state.step
        minutes = (time.monotonic() - self.keeper.last_save_time) / 60
        return step > 0 and (
            (section.save_steps is not None and step % section.save_steps == 0)
            or (section.save_minutes is not None and minutes >= section.save_minutes)
        )

    def _evaluation_is_due(self) -> bool:
        training, step = self.training, self.training.state.step
        section = training.profile.eval
        if training.prepared.evaluation is None or training.state.evaluated_step >= step:
            return False
        if step == 0:
            return section.eval_on_start
        every = {"no": 0, "steps": section.eval_steps, "epoch": training.prepared.plan.steps_per_epoch}
        period = every[section.eval_strategy]
        return self._is_last() or (period > 0 and step % period == 0)

    def _step(self, batches: list[Batch], data_seconds: float) -> None:
        """One optimizer update over all micro-batches of the step: the loss is its sum over its whole weight."""
        training, state = self.training, self.training.state
        begun = time.perf_counter()
        number = state.step + 1
        rate = self._learning_rate(number)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        try:
            loss, extras = self._forward_backward(batches, number)
        except BaseException:
            training.optimizer.zero_grad(set_to_none=True)  # whoever saves now saves the last boundary
            raise
        norm = self._gradient_norm()
        after_backward = time.perf_counter()
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied:
            training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
        after_update = time.perf_counter()
        num_tokens = sum(batch.num_tokens for batch in batches)
        state.step = number
        state.num_tokens += num_tokens
        state.num_target_tokens += (num_targets := sum(len(batch.target_ids) for batch in batches))
        state.bad_steps = 0 if applied else state.bad_steps + 1
        seconds = time.perf_counter() - begun + data_seconds
        training.logbook.step(
            Step(
                step=number, epoch=training.prepared.plan.epoch_of(number), loss=loss, learning_rate=rate,
                grad_norm=norm, num_tokens=num_tokens, num_target_tokens=num_targets,
                tokens_per_second=num_tokens / seconds, data_seconds=data_seconds,
                forward_backward_seconds=after_backward - begun, optimizer_seconds=after_update - after_backward,
                rest_seconds=begun + seconds - data_seconds - after_update,
                memory=used_bytes(training.hardware.device), applied=applied, extras=extras,
            )
        )  # fmt: skip
        training.logbook.progress(step=number)
        if state.bad_steps >= training.profile.health.max_bad_steps:
            raise NonFiniteError(
                f"{state.bad_steps} steps in a row up to step {number} had a NaN or infinite loss or gradient.",
                hint="None of them was applied. Lower the learning rate, or check the data of these steps.",
            )

    def _forward_backward(self, batches: list[Batch], number: int) -> tuple[float, dict[str, float | None]]:
        training = self.training
        weight = sum(len(batch.target_ids) for batch in batches)
        total = torch.zeros((), device=training.hardware.device)
        sums: dict[str, torch.Tensor] = {}
        for micro_step, batch in enumerate(batches, start=1):
            training.control.poll()
            loss, _, extras = training.module(batch.to(training.hardware.device))
            training.accelerator.backward(loss / weight)
            total += loss.detach()
            for name, value in extras.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value.detach()
            training.logbook.progress(micro_step=micro_step)
        return float(total) / weight, {name: float(value) / weight for name, value in sums.items()}

    def _gradient_norm(self) -> float:
        """Length of the whole step's gradient, cut to max_grad_norm (the length before the cut is returned)."""
        training = self.training
        longest = training.profile.train.max_grad_norm
        weights = [w for group in training.optimizer.param_groups for w in group["params"]]
        return float(training.accelerator.clip_grad_norm_(weights, math.inf if longest is None else longest))
