"""What each moment of a stretch of time was spent on: every nanosecond once, so that the parts add up to the whole."""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Span(Generic[T]):
    """Something that lasts from `start` to `end` (nanoseconds); of a higher `layer` it covers what is below."""

    label: T
    start: int
    end: int
    layer: int = 0


def divide_time(spans: Iterable[Span[T]], start: int, end: int, rest: T) -> dict[T, int]:
    """Nanoseconds of each label between `start` and `end`; they add up to `end - start`.

    A moment belongs to the span of the highest layer, there to the one that began last: of operations that call each
    other the innermost, of kernels on several streams the newest. Where there is none it belongs to `rest`.
    """
    order = sorted((span for span in spans if span.end > span.start), key=lambda span: span.start)
    totals: dict[T, int] = {}
    active: list[tuple[int, int, int, int]] = []  # heap: -layer, -start, end, number
    now, number = start, 0
    while now < end:
        while number < len(order) and order[number].start <= now:
            span = order[number]
            heapq.heappush(active, (-span.layer, -span.start, span.end, number))
            number += 1
        while active and active[0][2] <= now:
            heapq.heappop(active)
        until = min(end, order[number].start if number < len(order) else end)
        label = rest
        if active:
            until, label = min(until, active[0][2]), order[active[0][3]].label
        totals[label] = totals.get(label, 0) + until - now
        now = until
    return totals


def label_at(marks: Sequence[Span[T]], moment: int, rest: T) -> T:
    """The label of the mark that a moment is in. `marks` do not overlap, and are in order."""
    number = bisect_right(marks, moment, key=lambda mark: mark.start) - 1
    return marks[number].label if number >= 0 and moment < marks[number].end else rest
