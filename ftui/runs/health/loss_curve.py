"""Statistical rules about the loss. Pure functions of the newest steps, which are all applied and finite."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from ftui.runs.events import Step
from ftui.runs.health.health_rules import HealthFinding
from ftui.runs.health.noise import Scatter, scatter_of

WINDOW = 100
"""Steps that a step is compared with."""
FEWEST = 30
LAST = 3
"""Steps that may be a spike, and are not compared with."""
AVERAGED = 20
MOST_SCORE = 4.0
FLOOR_AVERAGED = 100
"""Steps of the mean whose lowest point counts: that of a shorter one falls on and on, by its noise alone."""
EVALUATIONS = 4
FIRST = 5
RISEN = 1.15
BEGINNING = 50
NOTHING_LEARNED = 200
HIGH_RATE = 0.5
BY_HEART = 50
BY_HEART_NATS = 0.05
"""A loss so low, nats a token, is that of rows known by heart, whatever an evaluation says."""


def loss_of(step: Step) -> float:
    """The loss of a step that has one."""
    assert step.loss is not None, "steps without a loss are filtered out before any rule"
    return step.loss


def usual_loss(steps: Sequence[Step]) -> Scatter:
    """The scatter of the losses of steps."""
    return scatter_of([loss_of(step) for step in steps], [step.num_target_tokens for step in steps])


def spike(usual: Scatter, last: Sequence[Step], limit: float) -> HealthFinding | None:
    """The newest step's loss is `limit` deviations above the usual, or two of three are half of it."""
    scores = [usual.z(loss_of(step), step.num_target_tokens) for step in last]
    if not _is_spike(scores, limit):
        return None
    step = last[-1]
    return HealthFinding(
        "spike",
        f"loss {loss_of(step):.3f} at step {step.step}, {scores[-1]:.0f} standard deviations above the usual "
        f"{usual.value:.3f} for {step.num_target_tokens} target tokens",
        f"Look at the rows of that step: `ftui blame {{run}} {step.step}` names those that the loss comes from.",
    )


def gradient_spike(steps: Sequence[Step], limit: float) -> HealthFinding | None:
    """The same of the gradient's length, with what 1 / sqrt(target tokens) explains of it taken out."""
    if len(steps) < FEWEST + LAST or any(not step.grad_norm for step in steps[-LAST:]):
        return None
    before = [step for step in steps[-WINDOW - LAST : -LAST] if step.grad_norm]
    if len(before) < FEWEST:
        return None
    usual = scatter_of([_log_length(step) for step in before], [1] * len(before))
    usual = replace(usual, sigma=max(usual.sigma, 0.05))
    scores = [usual.z(_log_length(step), 1) for step in steps[-LAST:]]
    if not _is_spike(scores, limit):
        return None
    step = steps[-1]
    times = math.exp(_log_length(step) - usual.value)
    return HealthFinding(
        "gradient_spike",
        f"gradient {step.grad_norm:.3g} at step {step.step}, {times:.1f} times the usual for "
        f"{step.num_target_tokens} target tokens ({scores[-1]:.0f} standard deviations)",
        f"Look at the rows of that step: `ftui blame {{run}} {step.step}`.",
    )


def _log_length(step: Step) -> float:
    return math.log(step.grad_norm or 1.0) + 0.5 * math.log(max(1, step.num_target_tokens))


def _is_spike(scores: Sequence[float], limit: float) -> bool:
    return scores[-1] >= limit or (scores[-1] >= limit / 2 and sorted(scores)[-2] >= limit / 2)


@dataclass(frozen=True)
class Trend:
    """Moving means of the loss, weighted by target tokens. `lowest`: the least that the slow one has been."""

    num_steps: int = 0
    fast: float = 0.0
    fast_weight: float = 0.0
    slow: float = 0.0
    slow_weight: float = 0.0
    lowest: float = math.inf
    lowest_step: int = 0

    def follow(self, step: Step, usual: Scatter | None) -> "Trend":
        """The trend after one more step. Both means are corrected for having begun at nothing.

        A loss beyond four deviations of the usual counts as if it were four: a spike is no trend.
        """
        loss, targets = loss_of(step), max(1, step.num_target_tokens)
        if usual is not None and (score := usual.z(loss, targets)) > MOST_SCORE:
            loss -= (loss - usual.value) * (1 - MOST_SCORE / score)
        fast = self.fast + (loss * targets - self.fast) / AVERAGED
        fast_weight = self.fast_weight + (targets - self.fast_weight) / AVERAGED
        slow = self.slow + (loss * targets - self.slow) / FLOOR_AVERAGED
        slow_weight = self.slow_weight + (targets - self.slow_weight) / FLOOR_AVERAGED
        trend = Trend(self.num_steps + 1, fast, fast_weight, slow, slow_weight, self.lowest, self.lowest_step)
        mean = slow / slow_weight
        if trend.num_steps >= FEWEST and mean < self.lowest:
            return replace(trend, lowest=mean, lowest_step=step.step)
        return trend


def divergence(trend: Trend, usual: Scatter, step: int, limit: float) -> HealthFinding | None:
    """The mean of about 20 steps is `limit` of its own standard deviations above the lowest mean of about 100."""
    if trend.num_steps < 2 * FEWEST or math.isinf(trend.lowest):
        return None
    sigma = usual.sigma / math.sqrt(2 * AVERAGED - 1)
    mean = trend.fast / trend.fast_weight
    if mean - trend.lowest < limit * sigma:
        return None
    return HealthFinding(
        "divergence",
        f"the mean loss of about {AVERAGED} steps is {mean:.3f} at step {step}; it was {trend.lowest:.3f} at step "
        f"{trend.lowest_step} ({(mean - trend.lowest) / sigma:.0f} standard deviations)",
        "Lower the learning rate from the next step on: `ftui set {run} learning_rate_factor=0.3`.",
    )


def worse_than_begun(beginning: Sequence[Step], trend: Trend, step: int) -> HealthFinding | None:
    """The mean of about 20 losses is far above that of the first five: what diverges at once has no lower point."""
    first = beginning[:FIRST]
    if len(first) < FIRST or trend.num_steps < FEWEST:
        return None
    targets = sum(one.num_target_tokens for one in first)
    begun = sum(loss_of(one) * one.num_target_tokens for one in first) / max(1, targets)
    mean = trend.fast / trend.fast_weight
    if mean < RISEN * begun:
        return None
    return HealthFinding(
        "divergence",
        f"the mean loss of about {AVERAGED} steps is {mean:.3f} at step {step}; in the first {FIRST} steps it was "
        f"{begun:.3f}",
        "Begin again with a tenth of train.learning_rate: `ftui abort {run}` ends this one.",
    )


def plateau(steps: Sequence[Step], highest_rate: float, evaluations: Sequence[tuple[int, float]], limit: float) -> (
    HealthFinding | None
):  # fmt: skip
    """The newest four evaluations, after those of the start, are within a share `limit` of each other, while the rate
    is still high. `evaluations`: step and loss, oldest first.
    """
    last = evaluations[-EVALUATIONS:]
    rates = [step.learning_rate for step in steps if last and step.step >= last[0][0]]
    if len(last) < EVALUATIONS or last[-1][0] - last[0][0] < BEGINNING or not rates:
        return None
    losses = [loss for _, loss in last]
    if min(rates) < HIGH_RATE * highest_rate or max(losses) - min(losses) > limit * losses[0]:
        return None
    return HealthFinding(
        "plateau",
        f"the evaluation loss has been {min(losses):.4f} to {max(losses):.4f} in {EVALUATIONS} evaluations from step "
        f"{last[0][0]} to {last[-1][0]}, at learning rate {steps[-1].learning_rate:.2g}",
        "End it here, if that is good enough: `ftui stop {run}` saves and writes final/; else fork it with another "
        "train.learning_rate.",
    )


def nothing_learned(beginning: Sequence[Step], steps: Sequence[Step], highest_rate: float) -> HealthFinding | None:
    """In 200 steps after the first 50 the loss has not become significantly lower than in those 50."""
    recent = steps[-WINDOW:]
    if len(beginning) < BEGINNING or recent[-1].step < beginning[-1].step + NOTHING_LEARNED:
        return None
    if recent[-1].learning_rate < HIGH_RATE * highest_rate or highest_rate == 0:
        return None
    before, after = ([loss_of(step) for step in part] for part in (beginning, recent))
    error = math.sqrt(variance(before) / len(before) + variance(after) / len(after))
    if fmean(before) - fmean(after) > 2 * error:
        return None
    return HealthFinding(
        "plateau",
        f"the mean loss of the newest {len(recent)} steps is {fmean(after):.3f}, that of the first {len(before)} was "
        f"{fmean(before):.3f}: within the noise",
        f"Raise train.learning_rate (it is {recent[-1].learning_rate:.2g}), or see that the answers fit the prompts: "
        "`ftui preview`.",
    )


def memorisation(steps: Sequence[Step], evaluations: Sequence[tuple[int, float]], limit: float) -> HealthFinding | None:
    """The mean loss of 50 steps is below a share `limit` of the newest evaluation loss, or as good as 0."""
    recent = steps[-BY_HEART:]
    if len(recent) < BY_HEART:
        return None
    targets = sum(step.num_target_tokens for step in recent)
    mean = sum(loss_of(step) * step.num_target_tokens for step in recent) / max(1, targets)
    compared = ""
    if evaluations and mean < limit * evaluations[-1][1]:
        compared = f", that of the evaluation at step {evaluations[-1][0]} is {evaluations[-1][1]:.3f}"
    if not compared and mean >= BY_HEART_NATS:
        return None
    return HealthFinding(
        "memorisation",
        f"the mean loss of the newest {len(recent)} steps is {mean:.3f}{compared} (epoch {steps[-1].epoch:.1f})",
        "Train fewer epochs: `ftui stop {run}` ends it now and writes final/; or drop rows that occur more than once: "
        "`ftui preview` counts them.",
    )
