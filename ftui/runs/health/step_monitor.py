"""Follows the steps and evaluations of an attempt, and says what the statistical rules find: each thing once.

What lasts is told when it begins. After it has been over for a while it may be told again, a rule at most once a
minute.
"""

import math
from collections import deque
from collections.abc import Iterable

from ftui.runs.events import AnyRecord, EvaluationDone, RunStarted, StageBegan, Step
from ftui.runs.health.exact_rules import TOKEN_STAGES
from ftui.runs.health.health_rules import HealthFinding, Thresholds
from ftui.runs.health.loss_curve import (
    BEGINNING,
    FEWEST,
    LAST,
    WINDOW,
    Trend,
    divergence,
    gradient_spike,
    memorisation,
    nothing_learned,
    plateau,
    spike,
    usual_loss,
    worse_than_begun,
)
from ftui.runs.health.noise import Scatter
from ftui.runs.health.step_pace import COMPARED, clipping, data_starvation, slow_steps

KEPT = WINDOW + LAST
WARM_UP = 5
"""Steps of an attempt that pay for kernels and caches: their pace is compared with nothing."""
EVALUATIONS_KEPT = 8
QUIET_STEPS = 50
"""What has not been so for as many steps is over."""
BETWEEN_SECONDS = 60.0


class Reported:
    """What has been told already. `rules_off`: what nobody wants to hear of."""

    def __init__(self, rules_off: Iterable[str] = ()) -> None:
        self._off = frozenset(rules_off)
        self._lasting: dict[str, int] = {}  # by rule, since how many looks it has not been found
        self._times: dict[str, float] = {}

    def choose(self, findings: Iterable[HealthFinding], now: float) -> list[HealthFinding]:
        """Those of one look at the run that are to be told, at the time `now` (seconds)."""
        found = {finding.rule: finding for finding in findings if finding.rule not in self._off}
        for rule in list(self._lasting):
            self._lasting[rule] = 0 if rule in found else self._lasting[rule] + 1
            if self._lasting[rule] >= QUIET_STEPS:
                del self._lasting[rule]
        told = []
        for rule, finding in found.items():
            if rule in self._lasting or now - self._times.get(rule, -math.inf) < BETWEEN_SECONDS:
                continue
            self._lasting[rule], self._times[rule] = 0, now
            told.append(finding)
        return told


class StepMonitor:
    """Takes in the records of a run as they come. Its memory does not grow."""

    def __init__(
        self, thresholds: Thresholds, *, stage: str, max_grad_norm: float | None, rules_off: Iterable[str] = ()
    ) -> None:
        self._thresholds = thresholds
        self._tells_nats = stage in TOKEN_STAGES
        self._max_grad_norm = max_grad_norm
        self._reported = Reported(rules_off)
        self._begin()

    def _begin(self) -> None:
        self._steps: deque[Step] = deque(maxlen=KEPT)
        self._first: deque[Step] = deque(maxlen=BEGINNING)
        self._compared: list[Step] = []
        self._evaluations: deque[tuple[int, float]] = deque(maxlen=EVALUATIONS_KEPT)
        self._usual: Scatter | None = None
        self._trend, self._highest_rate, self._num_steps = Trend(), 0.0, 0

    def read(self, record: AnyRecord) -> list[HealthFinding]:
        """What is to be told after one more record."""
        match record:
            case RunStarted() | StageBegan():  # other rows: nothing of before can be compared with
                self._begin()
            case EvaluationDone(requested=False, loss=float(loss)) if math.isfinite(loss) and record.step > 0:
                self._evaluations.append((record.step, loss))
            case Step() if record.applied and record.loss is not None and math.isfinite(record.loss):
                self._take(record)
                return self._reported.choose(self._find(), record.time)
        return []

    def _take(self, step: Step) -> None:
        self._num_steps += 1
        self._steps.append(step)
        before = list(self._steps)[:-LAST]
        self._usual = usual_loss(before) if len(before) >= FEWEST else None
        self._trend = self._trend.follow(step, self._usual)
        self._highest_rate = max(self._highest_rate, step.learning_rate)
        if self._num_steps <= BEGINNING:
            self._first.append(step)
        if self._num_steps > WARM_UP and len(self._compared) < COMPARED:
            self._compared.append(step)

    def _find(self) -> list[HealthFinding]:
        steps, limits = list(self._steps), self._thresholds
        found = [
            gradient_spike(steps, limits.gradient_spike),
            data_starvation(steps, limits.data_starvation),
            slow_steps(self._compared, steps, limits.slow_steps),
            clipping(steps, self._max_grad_norm, limits.clipping),
        ]
        if self._tells_nats and self._usual is not None:
            evaluations = list(self._evaluations)
            found += [
                spike(self._usual, steps[-LAST:], limits.spike),
                divergence(self._trend, self._usual, steps[-1].step, limits.divergence)
                or worse_than_begun(list(self._first), self._trend, steps[-1].step),
                plateau(steps, self._highest_rate, evaluations, limits.plateau)
                or nothing_learned(list(self._first), steps, self._highest_rate),
                memorisation(steps, evaluations, limits.memorisation),
            ]
        return [finding for finding in found if finding is not None]
