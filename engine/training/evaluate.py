"""The loss on held-out rows: mean over all their target tokens, the same whatever the batches are."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch

from ftui.errors import NonFiniteError
from ftui.profile.schema import Profile
from ftui.profile.sections.evaluation import EvalSection
from ftui.profile.sections.preference import REFERENCE_STAGES
from ftui.runs.events import EvaluationDone
from ftui.runs.health.exact_rules import TOKEN_STAGES

from ..distributed.sharded_base import alone, within_shared_memory
from ..health.watch import HealthWatch
from ..models.model_parts import ModelParts
from ..models.performance import uncompiled
from ..objectives import Loss, add_up
from ..objectives.loss import Batch
from ..optim import plateau
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.device import Hardware
from ..system.memory import release_cached_memory
from ..system.train_state import TrainState
from .collate import collate_examples
from .divergence import sum_log_ratios
from .forward_backward import mean_of, read_sums
from .prepare import TrainingData
from .triggers import epoch_at

MANY_NATS = 3.0
"""Of a whole answer: e to the power of it is 20 times less likely."""


class MeasuresAnswers(Protocol):
    """Has the model answer evaluation rows."""

    def measure(self, step: int) -> Mapping[str, float | None]:
        """Measures of the answers by name; none where they could not be measured."""
        ...


@dataclass(eq=False)
class Evaluator:
    """Evaluates the model on the rows held out; there must be some."""

    profile: Profile
    data: TrainingData
    parts: ModelParts
    state: TrainState
    control: Control
    events: EventWriter
    answers: MeasuresAnswers | None = None
    """What the model answers to the rows; in stages that learn from rewards nothing else is measured."""
    watch: HealthWatch | None = None

    def evaluate(self, *, requested: bool = False) -> EvaluationDone:
        """Evaluate, and note in the state whether it is the best so far. Moves no random generator.

        One that was `requested` moves neither the best nor the patience. One that does not fit into memory is given up
        with a warning: a run never ends for want of a number.

        Raises:
            Shutdown: between two batches.
            GpuMemoryError, HostMemoryError: as `alone`.
            NonFiniteError: the loss before the first step is NaN or infinite.
        """
        start, state, is_best = time.monotonic(), self.state, False
        with self.events.within("evaluating"), alone(self.parts):
            row_losses: list[np.ndarray] = []
            loss, extras, num_targets = self._mean_loss(row_losses)
            if self.answers is not None:
                extras |= self.answers.measure(state.step)
        if not requested:
            section = self.profile.resolved_eval
            is_best = note_evaluation(state, loss, extras, section)
            value = section.value_of(loss, extras)
            plateau.note_metric(state, self.profile.train, value, greater_counts=section.greater_counts)
            self._explain_fall(extras)
        event = EvaluationDone(
            step=state.step,
            epoch=epoch_at(self.data.plan, state, state.step),
            loss=loss,
            num_target_tokens=num_targets,
            extras=extras,
            seconds=time.monotonic() - start,
            best=is_best,
            requested=requested,
        )
        self.events.write(event)
        if self.watch is not None and not requested and loss is not None:
            self.watch.see_evaluation(state.step, self._by_row(row_losses))
        if state.step == 0 and not state.last_is_finite:
            raise non_finite("The evaluation loss before the first step", self.profile, self.parts.hardware)
        return event

    def _explain_fall(self, extras: dict[str, float | None]) -> None:
        """Say once that falling rewards of chosen answers are usual, where they have fallen far."""
        if not self.state.has_explained_fall and (text := explain_fall(self.profile, extras)):
            self.state.has_explained_fall = True
            self.events.note(text)

    def _by_row(self, row_losses: list[np.ndarray]) -> np.ndarray:
        """The mean loss of each row, longest first, nats a token; none where the stage's loss is another one."""
        rows = self.data.evaluation
        assert rows is not None, "an evaluator is made only where there are rows"
        sizes, values = rows.num_targets[rows.longest_first], np.concatenate([*row_losses, np.zeros(0, np.float32)])
        if self.profile.run.stage not in TOKEN_STAGES or len(values) != sizes.sum() or not sizes.all():
            return np.zeros(0)
        return np.asarray(np.add.reduceat(values.astype(np.float64), np.cumsum(sizes) - sizes) / sizes)

    def _mean_loss(self, row_losses: list[np.ndarray]) -> tuple[float | None, dict[str, float | None], int]:
        """Loss, metrics and number of target tokens, and in `row_losses` the loss of each target; a batch that does not
        fit into memory is taken again in halves.

        Without a loss where not even one row fits, and where answers are sampled: it would say nothing.
        """
        if self.profile.samples_answers:
            return None, {}, 0
        rows, size = self.data.evaluation, self.profile.eval.per_device_eval_batch_size
        assert rows is not None, "an evaluator is made only where there are rows"
        order, start = rows.longest_first, 0
        sums, metrics = dict[str, float](), dict[str, float]()
        self.parts.model.eval()
        try:
            divergence = self._divergence(size)
            if divergence is None:
                self.events.warn(f"the evaluation at step {self.state.step} does not fit into memory")
                return None, {}, 0
            while start < len(order):
                self.control.poll(RequestLevel.SAVE)
                chosen = [(int(i),) for i in order[start : start + size]]
                batch = collate_examples(rows, chosen, self.data.pad_id, self.parts.layout)
                result = batch_loss(self.parts, replace(batch, divergence=divergence), self.profile, row_losses)
                if result is None and size == 1:
                    self.events.warn(f"the evaluation at step {self.state.step} does not fit into memory")
                    return None, {}, 0
                if result is None:
                    size = (size + 1) // 2
                    self.events.warn(f"evaluation continues in batches of {size}: more did not fit into memory")
                    continue
                add_up(sums, result[0])
                add_up(metrics, result[1])
                start += size
                self.events.progress()
        finally:
            self.parts.model.train()
        amounts = rows.amounts(order)
        return mean_of(sums, amounts), self.parts.objective.means(metrics, amounts), amounts["targets"]

    def _divergence(self, size: int) -> float | None:
        """The mean log-ratio of model and reference on the mismatched answers of all evaluation rows (stage kto).

        In batches of half the size where memory runs out; `None` where not even one row fits.
        """
        rows = self.data.evaluation
        if rows is None or rows.mismatched is None:
            return 0.0
        groups = [[(int(i),) for i in part] for part in np.split(rows.longest_first, range(size, len(rows), size))]
        batches = (collate_examples(rows.mismatched, group, self.data.pad_id, self.parts.layout) for group in groups)
        total, _ = within_shared_memory(self.parts.base, partial(sum_log_ratios, self.parts, batches))
        if total is not None:
            return total / len(rows)
        release_cached_memory(self.parts.device)
        return None if size == 1 else self._divergence((size + 1) // 2)


def batch_loss(
    parts: ModelParts, batch: Batch, profile: Profile, of_targets: list[np.ndarray] | None = None
) -> tuple[dict[str, float], dict[str, float]] | None:
    """The sums of the losses and of the metrics; `None` when memory ran out. The loss of each target is added to
    `of_targets`, where the stage has one.
    """

    def measure() -> tuple[dict[str, float], dict[str, float]]:
        with torch.no_grad(), uncompiled(profile.train):
            loss: Loss = parts.module(batch.to(parts.device))
            sums, metrics = read_sums(loss.sums, loss.metrics)
            if of_targets is not None and "targets" in loss.each:
                of_targets.append(loss.each["targets"].float().cpu().numpy())
        return sums, metrics

    result, problem = within_shared_memory(parts.base, measure)
    if problem:
        release_cached_memory(parts.device)
    return result


def check_forward(profile: Profile, data: TrainingData, parts: ModelParts) -> None:
    """Evaluate one batch, where no evaluation is due before the first step: a kernel of this processor may give NaN.

    Answers of a model are looked at as they are generated.

    Raises:
        NonFiniteError: the loss is NaN or infinite.
    """
    size = profile.eval.per_device_eval_batch_size
    if profile.samples_answers:
        return
    if data.evaluation is None:  # of rows that no step reaches, no reference was measured
        rows, first = data.train, data.plan.step(1)[:size]
    else:
        rows, first = data.evaluation, [(number,) for number in range(min(len(data.evaluation), size))]
    parts.model.eval()
    with alone(parts):
        result = batch_loss(parts, collate_examples(rows, first, data.pad_id, parts.layout), profile)
    parts.model.train()
    losses = {} if result is None else result[0]  # None: it did not fit, which an evaluation copes with
    if not all(map(math.isfinite, losses.values())):
        raise non_finite("The loss of a batch before this attempt's first step", profile, parts.hardware)


def non_finite(what: str, profile: Profile, hardware: Hardware) -> NonFiniteError:
    """The error for a loss of an evaluation; the advice follows from what computes it."""
    base = " over a quantised base" if profile.adapter.is_quantised else ""
    if hardware.precision != "fp32":
        hint = 'Set train.precision = "fp32"' + (' or "bf16".' if hardware.precision == "fp16" else ".")
    elif base:
        hint = 'Use method = "lora" without load_in_8bit.'
    else:
        hint = "Lower the learning rate, or check the weights that the run starts from."
    how = f"{hardware.precision}{base} on {hardware.name}"
    return NonFiniteError(f"{what} is NaN or infinite ({how}).", hint=f"{hint} Checkpoints stay as they are.")


def explain_fall(profile: Profile, extras: dict[str, float | None]) -> str:
    """Why the chosen answers have become less likely than they were under the reference, and what helps; else "".

    Little is no matter, and where the rejected ones are ahead that is not what is wrong.
    """
    chosen, margin = extras.get("rewards/chosen"), extras.get("rewards/margins")
    stage, beta = profile.run.stage, profile.preference.beta
    if stage not in REFERENCE_STAGES or chosen is None or margin is None:
        return ""
    if margin <= 0 or chosen > -MANY_NATS * beta:
        return ""
    which = ("chosen", "rejected") if stage == "dpo" else ("good", "bad")
    what_helps = 'or add "sft" to preference.loss_type' if stage == "dpo" else "or preference.desirable_weight"
    return (
        f"the {which[0]} answers are less likely than they were at the start (reward {chosen:.2f}), and the {which[1]} "
        f"ones still less ({chosen - margin:.2f}). That is usual: {stage} trains the difference. If answers get worse, "
        f"raise preference.beta {what_helps}."
    )


def note_evaluation(
    state: TrainState, loss: float | None, extras: dict[str, float | None], section: EvalSection
) -> bool:
    """Note an evaluation; returns whether it is the best so far. Step 0 never is: the others are compared with it.

    One that could not be measured (`None`) costs no patience: a loss of NaN does.
    """
    finite = loss is not None and math.isfinite(loss)
    is_sound = finite or (loss is None and "reward" in extras)
    state.evaluated_step = state.step
    state.last_loss = loss if finite else None
    state.last_is_finite = loss is None or finite
    if state.step == 0:
        state.loss_before = state.last_loss
        return False
    value = section.value_of(loss, extras)
    if value is None:
        return False
    before = state.best_loss if section.metric_for_best_model == "loss" else state.best_metric
    gain = math.inf if before is None else value - before if section.greater_counts else before - value
    best = is_sound and gain > 0
    state.bad_evaluations = 0 if best and gain > section.early_stopping_threshold else state.bad_evaluations + 1
    if best:
        state.best_loss, state.best_metric, state.best_step = loss, value, state.step
    return best
