"""Looks at each step of a training run for what is certainly wrong, and does what health.on_red says.

It costs nothing that can be measured: the gradients are looked at in the first few steps of an attempt and where one is
not finite, everything else is numbers that the step has anyway.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ftui.profile.schema import Profile
from ftui.runs.events import Step
from ftui.runs.health.exact_rules import (
    KNOWS_MORE,
    TOKEN_STAGES,
    dead_adapter,
    mean_loss,
    non_finite,
    worse_than_guessing,
    zero_loss,
)
from ftui.runs.health.health_rules import HealthFinding, Thresholds, level_of
from ftui.runs.health.paired_rows import overfitting, too_few_rows
from ftui.runs.health.rollout_rules import RolloutMonitor
from ftui.runs.health.step_monitor import Reported
from ftui.runs.records.health_records import HealthAlarm

from ..distributed.sharded_base import own_part
from ..models.model_parts import ModelParts
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter

CHECKED_STEPS = 5
"""Applied steps after which an adapter must have an effect: the first one may have a learning rate of 0."""
COMPARED_STEPS = 64
SECOND_MATRIX = ".lora_B."
UNEVEN = ("expert", "embed")
"""Parts of names of weights that a few steps need not reach: experts that no token chose, tokens that did not occur."""


@dataclass(eq=False)
class HealthWatch:
    """The exact rules over one attempt; on rank 0."""

    profile: Profile
    parts: ModelParts
    events: EventWriter
    control: Control
    run_name: str

    def __post_init__(self) -> None:
        self._reported = Reported(self.profile.health.ignore)
        self._steps: deque[Step] = deque(maxlen=COMPARED_STEPS)
        self._rollouts: RolloutMonitor | None = None
        if self.profile.samples_answers:
            self._rollouts = RolloutMonitor(Thresholds(**self.profile.health.thresholds.model_dump()))
        self._without_gradient = {
            name for name, weight in self.parts.model.named_parameters()
            if weight.requires_grad and not any(part in name for part in UNEVEN)
        }  # fmt: skip
        self._tells_nats = self.profile.run.stage in TOKEN_STAGES  # in others a step may well have no gradient
        self._knew_more = False
        self._num_checked = 0
        self._best_rows: tuple[int, np.ndarray] | None = None  # the step of the best evaluation, the loss of each row
        self._told_of_evaluations = Reported(self.profile.health.ignore)
        self._has_said_too_few = False
        self._found: list[HealthFinding] = []
        self._bad_gradients: list[str] = []
        self._bad_weights: list[str] = []
        config = self.parts.model.config.get_text_config()
        self._vocabulary = int(getattr(config, "vocab_size", 0) or 0)

    def see_gradients(self, grad_norm: float, rate: float, *, applied: bool) -> None:
        """Look at a step's gradients, once its update was made or was dropped and before they go."""
        self._bad_gradients, self._bad_weights = [], []
        if not applied:
            self._bad_gradients = self._named(lambda size: not math.isfinite(size), of_gradients=True)
            self._bad_weights = self._named(lambda size: not math.isfinite(size), of_gradients=False)
        elif self._num_checked < CHECKED_STEPS and rate > 0 and (grad_norm > 0 or self._tells_nats):
            self._num_checked += 1
            if self._without_gradient:
                self._without_gradient -= set(self._named(lambda size: size > 0, of_gradients=True))
            if self._num_checked == CHECKED_STEPS:
                self._check_adapter()

    def _check_adapter(self) -> None:
        seconds = {
            name: weight for name, weight in self.parts.model.named_parameters()
            if SECOND_MATRIX in name and not any(part in name for part in UNEVEN)
        }  # fmt: skip
        zeros = [name for name, size in zip(seconds, sizes_of(list(seconds.values())), strict=True) if size == 0]
        unreached = sorted(self._without_gradient - set(zeros))
        if zeros or unreached:
            found = dead_adapter(
                [target_name(name) for name in zeros], [target_name(name) for name in unreached],
                of=len(seconds), after=CHECKED_STEPS,
            )  # fmt: skip
            self._found.append(found)

    def _named(self, chosen: Callable[[float], bool], *, of_gradients: bool) -> list[str]:
        """The trained weights whose gradient, or which themselves, have a size that is chosen."""
        weights = {name: weight for name, weight in self.parts.model.named_parameters() if weight.requires_grad}
        given = {
            name: value for name, weight in weights.items()
            if (value := weight.grad if of_gradients else weight.detach()) is not None
        }  # fmt: skip
        return [name for name, size in zip(given, sizes_of(list(given.values())), strict=True) if chosen(size)]

    def see_step(self, record: Step, *, overflowed: bool) -> None:
        """Look at a finished step, after its record, and act on what is red. One that only lowers the loss scale of
        fp16 (`overflowed`) is as it should be.
        """
        found, self._found = self._found, []
        if not record.applied and not overflowed:
            names = [target_name(name) for name in self._bad_gradients]
            bad = non_finite(record, parameters=names, weights=[target_name(name) for name in self._bad_weights])
            found += [bad] if bad is not None else []
        elif record.applied and self._tells_nats:
            self._steps.append(record)
            found += self._look_at_loss(record)
        if self._rollouts is not None:
            found += self._rollouts.read(record.extras)
        for finding in self._reported.choose(found, time.monotonic()):
            self._tell(finding, record.step)

    def _look_at_loss(self, record: Step) -> list[HealthFinding]:
        looks = [zero_loss(record)]
        if self._vocabulary > 1 and not self.profile.train.label_smoothing_factor:
            looks.append(worse_than_guessing(self._steps, self._vocabulary, knew_more=self._knew_more))
            measured = mean_loss(self._steps)
            self._knew_more |= measured is not None and measured[0] < KNOWS_MORE * math.log(self._vocabulary)
        return [finding for finding in looks if finding is not None]

    def see_evaluation(self, step: int, losses: np.ndarray) -> None:
        """Compare the rows of an evaluation with those of the best one of this attempt: one by one.

        Args:
            losses: (rows,) nats a token, in the same order each time; none where the stage's loss is another one.
        """
        if not len(losses) or not np.isfinite(losses).all():
            return
        if self._best_rows is None or losses.mean() <= self._best_rows[1].mean():
            self._best_rows = step, losses
            return
        best_step, best = self._best_rows
        if (few := too_few_rows(len(losses))) and not self._has_said_too_few:
            self._has_said_too_few = True
            self.events.note(
                f"the evaluation loss has risen since step {best_step}; whether that is overfitting: {few}"
            )
        found = overfitting(best_step, best.tolist(), step, losses.tolist(), self.profile.health.thresholds.overfitting)
        for finding in self._told_of_evaluations.choose([found] if found is not None else [], time.monotonic()):
            self._tell(finding, step)

    def _tell(self, finding: HealthFinding, step: int) -> None:
        level = level_of(finding.rule)
        suggestion = finding.suggestion.format(run=self.run_name)
        alarm = HealthAlarm(rule=finding.rule, level=level, step=step, evidence=finding.evidence, suggestion=suggestion)
        self.events.write(alarm, durable=True)
        if level == "red" or finding.rule in self.profile.health.act_on:
            self.control.act_on_red(self.profile.health.on_red)


def sizes_of(tensors: list[Tensor]) -> list[float]:
    """The length of each tensor (of what this rank has of it); the host waits for the device once."""
    own = [own_part(tensor.detach()) for tensor in tensors]
    return torch.stack([torch.linalg.vector_norm(one.float()) for one in own]).tolist() if own else []


def target_name(parameter: str) -> str:
    """The module that an adapter's weight belongs to, as target_modules names it; others keep their name."""
    name = parameter.removeprefix("base_model.model.")
    for part in (".lora_A.", ".lora_B.", ".lora_magnitude_vector."):
        name = name.partition(part)[0] if part in name else name
    return name
