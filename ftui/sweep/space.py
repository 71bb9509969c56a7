"""The space of a search: what each key may be. A point of it is a value for each key."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

DIGITS = 6
"""Significant digits of a drawn number: more say nothing, and fill the tables."""
Point: TypeAlias = Mapping[str, Any]
"""A value for each dotted key (`train.learning_rate`)."""


@dataclass(frozen=True)
class ValueList:
    """One of these values, none nearer to another."""

    key: str
    values: tuple[Any, ...]

    def at(self, place: float) -> Any:
        """The value at a place from 0 to 1."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def index(self, value: Any) -> int:
        """Where a value stands among them."""
        return self.values.index(value)


@dataclass(frozen=True)
class ValueRange:
    """A number from `low` to `high`, both included; whole numbers where both are.

    `log`: drawn evenly by order of magnitude. `step`: only every so many from `low` on.
    """

    key: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step, int | None)

    @property
    def values(self) -> tuple[Any, ...]:
        """All of them, where there is a step: `step` apart, or 1 of whole numbers without `log`."""
        step = self.step or (1 if self.is_whole and not self.log else None)
        if step is None:
            return ()
        number = math.floor((self.high - self.low) / step + 1e-9) + 1
        return tuple(self.rounded(self.low + place * step) for place in range(number))

    def at(self, place: float) -> int | float:
        """The value at a place from 0 to 1."""
        if self.step is not None:
            values = self.values
            return values[min(int(place * len(values)), len(values) - 1)]  # type: ignore[no-any-return]
        low, high = self.low, self.high
        if self.is_whole:
            low, high = low - 0.5, high + 0.5
        drawn = math.exp(math.log(low) + place * math.log(high / low)) if self.log else low + place * (high - low)
        return self.rounded(min(max(drawn, self.low), self.high))

    def rounded(self, number: float) -> int | float:
        """The number as a value of this range."""
        if self.is_whole:
            return min(max(math.floor(number + 0.5), int(self.low)), int(self.high))
        return min(max(float(f"{number:.{DIGITS}g}"), self.low), self.high)


Dimension: TypeAlias = ValueList | ValueRange


def point_at(space: Sequence[Dimension], places: Sequence[float]) -> dict[str, Any]:
    """The point at these places, each from 0 to 1, one a dimension."""
    return {dimension.key: dimension.at(place) for dimension, place in zip(space, places, strict=True)}


def extremes(space: Sequence[Dimension], most: int) -> list[dict[str, Any]]:
    """All combinations of both ends of each range and each value of a list; `corners` where these are too many."""
    ends = [one.values if isinstance(one, ValueList) else (one.low, one.high) for one in space]
    if math.prod(map(len, ends)) > most:
        return corners(space)
    return [dict(zip((one.key for one in space), point, strict=True)) for point in itertools.product(*ends)]


def corners(space: Sequence[Dimension]) -> list[dict[str, Any]]:
    """Points that have each value of a list and both ends of each range among them: each fault of one value shows."""
    ends = [
        dimension.values if isinstance(dimension, ValueList) else (dimension.low, dimension.high) for dimension in space
    ]
    most = max((len(one) for one in ends), default=0)
    return [{d.key: one[min(n, len(one) - 1)] for d, one in zip(space, ends, strict=True)} for n in range(most)]
