"""Two models on the same rows: the mean difference with an interval, and whether it tells anything."""

import math
from collections.abc import Sequence

import msgspec

SIGMAS = 3.0
"""An interval leaves out the truth as rarely as a normal value is that far off: once in 370."""

CONFIDENCE = math.erf(SIGMAS / math.sqrt(2))
INTERVAL = f"paired by row, Student's t, {CONFIDENCE:.1%}"
FEWEST_ROWS = 10
TOO_FEW = "too few rows to tell"
MANY_DEGREES = 2000
"""From here on a t value is the normal one to three digits."""


class MeanDifference(msgspec.Struct, frozen=True):
    """The mean of a figure's differences over rows, one model less the other, and the interval around it."""

    mean: float
    low: float
    high: float
    num_rows: int

    def verdict(self, greater_is_better: bool | None) -> str:
        """What it says of the first model, in words."""
        if self.num_rows < FEWEST_ROWS:
            return TOO_FEW
        if self.low <= 0 <= self.high:
            return "the same on every row" if self.low == self.high else TOO_FEW
        if greater_is_better is None:
            return "more" if self.mean > 0 else "less"
        return "better" if (self.mean > 0) == greater_is_better else "worse"


def paired_difference(differences: Sequence[float], weights: Sequence[float] | None = None) -> MeanDifference | None:
    """The mean difference of a figure on the same rows, and its interval (INTERVAL).

    Args:
        differences: of each row, one model's sum less the other's.
        weights: what each row's sum is over (its tokens); the mean is sum(differences) / sum(weights), and its error
            that of a ratio (Cochran 1977, 6.4). Without them each row counts 1, which is the paired t-test.

    Returns:
        `None` for fewer than two rows: they have no spread.
    """
    number = len(differences)
    weights = [1.0] * number if weights is None else weights
    if number < 2 or not (total := math.fsum(weights)):
        return None
    mean = math.fsum(differences) / total
    squares = math.fsum((own - mean * weight) ** 2 for own, weight in zip(differences, weights, strict=True))
    half = t_value(number - 1) * math.sqrt(squares * number / (number - 1)) / total
    return MeanDifference(mean, mean - half, mean + half, number)


def t_value(num_degrees: int) -> float:
    """How many standard errors reach to either side of a mean at CONFIDENCE."""
    if num_degrees > MANY_DEGREES:
        return SIGMAS
    low, high = SIGMAS, 1000.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, num_degrees) < CONFIDENCE else (low, middle)
    return high


def _within(t: float, num_degrees: int) -> float:
    """The probability that Student's t lies between -t and t (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(num_degrees))
    cosine, is_odd = math.cos(angle), num_degrees % 2
    term = total = (cosine if is_odd else 1.0) if num_degrees > 1 else 0.0
    for k in range(2 + is_odd, num_degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if is_odd else math.sin(angle) * total
