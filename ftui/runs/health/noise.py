"""How much the values of steps scatter: by medians, which a few wild ones do not move.

A step's loss is a mean over its target tokens: its scatter goes with 1 / sqrt(target tokens). Deviations are therefore
multiplied by the square root of the step's target tokens (as a share of the usual number): without that most alarms
are steps of few tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

TO_SIGMA = 1.4826
"""Of a normal distribution: its standard deviation by the median of absolute deviations."""
LEAST_SHARE = 0.005
"""A scatter below this share of the value counts as so much: what was learned by heart hardly scatters."""


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the greater of the two in the middle."""
    return sorted(values)[len(values) // 2]


@dataclass(frozen=True)
class Scatter:
    """The usual value, the standard deviation of a step of `targets` target tokens."""

    value: float
    sigma: float
    targets: float

    def z(self, value: float, targets: int) -> float:
        """How far a step's value is above the usual, in standard deviations of a step of so many targets."""
        return (value - self.value) * math.sqrt(targets / self.targets) / self.sigma


def scatter_of(values: Sequence[float], targets: Sequence[int]) -> Scatter:
    """The scatter of steps; `targets` of each. At least one value."""
    usual, middle = max(1.0, fmean(targets)), median(values)
    deviations = [
        abs(value - middle) * math.sqrt(number / usual) for value, number in zip(values, targets, strict=True)
    ]
    sigma = TO_SIGMA * median(deviations)
    return Scatter(middle, max(sigma, LEAST_SHARE * abs(middle), 1e-9), usual)
