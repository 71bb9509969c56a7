"""Made-up courses of runs, sound and faulty, by seed: what the thresholds of a run's health are measured on.

The noise is one of three kinds, by seed: drawn from what a recorded run's losses scatter by, Student's t with five
degrees of freedom, or log-normal, which leans upwards. It goes with 1 / sqrt(target tokens), as the length of the
gradient does. Some runs fall fast, some slowly, some a little at the beginning of each epoch.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from ftui.runs.events import EvaluationDone, RunStarted, Step
from tests.support.events import make_evaluation, make_run_started, make_step

NUM_STEPS = 600
EVALUATED = 50
RECORDED = Path(__file__).parents[2] / "fixtures" / "runs" / "wiki-style-finished" / "metrics.jsonl"
Course = list[Step | EvaluationDone | RunStarted]


@cache
def recorded_scatter() -> tuple[float, ...]:
    """What a recorded run's losses differ by from their neighbours, times sqrt(target tokens), as standard normal."""
    steps = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    values = [
        (after["loss"] - before["loss"]) * math.sqrt(after["num_target_tokens"]) / math.sqrt(2)
        for before, after in pairwise(steps)
    ]
    sigma = math.sqrt(sum(value * value for value in values) / len(values))
    return tuple(value / sigma for value in values)


def noise(kind: int, dice: random.Random) -> float:
    """One value of scatter 1: recorded, Student's t, or log-normal."""
    if kind == 0:
        return dice.choice(recorded_scatter())
    if kind == 1:
        chi = sum(dice.gauss(0, 1) ** 2 for _ in range(5)) / 5
        return dice.gauss(0, 1) / math.sqrt(chi) / math.sqrt(5 / 3)
    return (dice.lognormvariate(0, 0.5) - math.exp(0.125)) / math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))


class Curve:
    """The course of a sound run; a fault changes it before `records` makes records of it."""

    def __init__(self, seed: int, num_steps: int = NUM_STEPS) -> None:
        dice = self.dice = random.Random(seed)
        self.num_steps, kind = num_steps, seed % 3
        self.floor, self.fall = dice.uniform(0.8, 2.5), dice.uniform(0.3, 1.5)
        tau, power = dice.uniform(30, 200), dice.uniform(0.15, 0.5)
        per_epoch, stair = num_steps // dice.choice((1, 2, 3)), dice.choice((0.0, 0.0, 0.06))
        self.per_epoch = per_epoch
        self.sigma = dice.uniform(0.03, 0.12) * self.floor
        self.targets = [max(16, int(dice.lognormvariate(7, 0.5))) for _ in range(num_steps)]
        usual = sum(self.targets) / num_steps
        decay = (lambda t: math.exp(-t / tau)) if seed % 2 else (lambda t: (1 + t / 10) ** -power)
        self.clean = [
            self.floor + self.fall * decay(t) - stair * self.floor * (t // per_epoch) for t in range(num_steps)
        ]
        self.scatter = [self.sigma * noise(kind, dice) * math.sqrt(usual / n) for n in self.targets]
        self.losses = [clean + own for clean, own in zip(self.clean, self.scatter, strict=True)]
        self.lengths = [
            0.4 * math.sqrt(usual / n) * dice.lognormvariate(0, 0.15) * (1 + decay(t))
            for t, n in enumerate(self.targets)
        ]
        self.rates = [
            1e-4 * min(1.0, (t + 1) / 20) * (1 + math.cos(math.pi * t / num_steps)) / 2 for t in range(num_steps)
        ]
        gap = dice.uniform(0.0, 0.25)
        self.evaluations = [
            clean + gap + dice.gauss(0, 0.003)
            for clean in (self.clean[t] for t in range(EVALUATED - 1, num_steps, EVALUATED))
        ]
        pace = dice.uniform(2e3, 2e4)
        self.paces = [pace * dice.lognormvariate(0, 0.06) for _ in range(num_steps)]
        self.waits = [max(0.0, dice.gauss(0.01, 0.01)) for _ in range(num_steps)]

    def records(self) -> Course:
        """The records of the run, one second a step."""
        course: Course = [make_run_started(max_steps=self.num_steps, time=0.0)]
        for t in range(self.num_steps):
            tokens = 2 * self.targets[t]
            total = tokens / self.paces[t]
            course.append(make_step(
                t + 1, time=float(t), epoch=(t + 1) / self.per_epoch, loss=self.losses[t], grad_norm=self.lengths[t],
                learning_rate=self.rates[t], num_tokens=tokens, num_target_tokens=self.targets[t],
                tokens_per_second=self.paces[t], data_seconds=total * self.waits[t],
                forward_backward_seconds=total * (1 - self.waits[t]), optimizer_seconds=0.0,
            ))  # fmt: skip
            if (t + 1) % EVALUATED == 0:
                course.append(make_evaluation(t + 1, loss=self.evaluations[(t + 1) // EVALUATED - 1], time=float(t)))
        return course


def spiked(sigmas: float, lengths: Sequence[int]) -> Callable[[Curve], int]:
    """A few steps are so many standard deviations above. A fault returns the step at which it begins."""

    def change(curve: Curve) -> int:
        start, length = curve.dice.randrange(120, 560), curve.dice.choice(lengths)
        usual = sum(curve.targets) / curve.num_steps
        for t in range(start, start + length):
            curve.losses[t] += sigmas * curve.sigma * math.sqrt(usual / curve.targets[t])
        return start + 1

    return change


def spiked_gradient(curve: Curve) -> int:
    """The gradient of three steps is ten times as long."""
    start = curve.dice.randrange(120, 560)
    for t in range(start, start + 3):
        curve.lengths[t] *= 10
    return start + 1


def drifting(sigmas: float, length: int) -> Callable[[Curve], int]:
    """The loss stops to fall, rises by so many standard deviations within `length` steps, and stays there."""

    def change(curve: Curve) -> int:
        start = curve.dice.randrange(120, 380)
        for t in range(start, curve.num_steps):
            risen = curve.clean[start] + sigmas * curve.sigma * min(1.0, (t - start) / length)
            curve.losses[t] = risen + curve.scatter[t]
        return start + 1

    return change


def flat(curve: Curve) -> int:
    """Nothing is learned, at a constant rate: neither loss falls."""
    level = curve.clean[0]
    curve.losses = [level + own for own in curve.scatter]
    curve.rates = [1e-4] * curve.num_steps
    curve.evaluations = [level + curve.dice.gauss(0, 0.0005) for _ in curve.evaluations]
    return 1


def known_by_heart(curve: Curve) -> int:
    """The loss in training goes on to fall towards 0, that of the evaluation does not."""
    start = curve.dice.randrange(100, 250)
    for t in range(start, curve.num_steps):
        share = math.exp((start - t) / 80)
        curve.losses[t] *= share
    for number in range(start // EVALUATED, len(curve.evaluations)):
        curve.evaluations[number] = curve.clean[start] * (1 + 0.02 * (number - start // EVALUATED))
    return start + 1


def starved(curve: Curve) -> int:
    """From a step on, 30 to 60 % of each step is waiting."""
    start, share = curve.dice.randrange(0, 400), curve.dice.uniform(0.3, 0.6)
    for t in range(start, curve.num_steps):
        curve.waits[t] = share * curve.dice.uniform(0.8, 1.2)
        curve.paces[t] *= 1 - share
    return start + 1


def slower(curve: Curve) -> int:
    """From a step on, 40 to 70 % of the pace is gone."""
    start, share = curve.dice.randrange(150, 500), curve.dice.uniform(0.4, 0.7)
    for t in range(start, curve.num_steps):
        curve.paces[t] *= 1 - share
    return start + 1


def clipped(curve: Curve) -> int:
    """Every gradient is 50 times as long."""
    curve.lengths = [50 * length for length in curve.lengths]
    return 1


FAULTS: dict[str, tuple[str, Callable[[Curve], int]]] = {
    "spike of 6 sigma, 1 to 10 steps": ("spike", spiked(6, range(1, 11))),
    "spike of 10 sigma, 1 or 2 steps": ("spike", spiked(10, (1, 2))),
    "spike of 10 sigma, 3 to 10 steps": ("spike", spiked(10, range(3, 11))),
    "spike of 20 sigma, 1 to 10 steps": ("spike", spiked(20, range(1, 11))),
    "gradient ten times as long, 3 steps": ("gradient_spike", spiked_gradient),
    "drift of 2 sigma over 200 steps": ("divergence", drifting(2, 200)),
    "drift of 4 sigma over 200 steps": ("divergence", drifting(4, 200)),
    "nothing learned": ("plateau", flat),
    "rows known by heart": ("memorisation", known_by_heart),
    "30 to 60 % of each step is waiting": ("data_starvation", starved),
    "40 to 70 % of the pace is gone": ("slow_steps", slower),
    "gradients 50 times as long": ("clipping", clipped),
}  # fmt: skip
"""By name: the rule that has to find it, and what it changes."""
