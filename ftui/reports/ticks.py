"""Round numbers at the edges of a plot, in few columns: the same on the screens and in pictures."""

import math
from collections.abc import Iterator

ROUND = (1, 2, 2.5, 5, 10)
LABEL = 6  # columns of a number at a value axis, one more at most
EPSILON = 1e-9  # also what floats may be off by


def round_numbers(low: float, high: float, most: int) -> tuple[list[float], float]:
    """About `most` round numbers from `low` to `high`, and the distance between them."""
    least = max(high - low, EPSILON) / max(1, most)
    unit = 10.0 ** math.floor(math.log10(least))
    size = next(size * unit for size in ROUND if size * unit >= least * (1 - EPSILON))
    first = math.ceil(low / size - EPSILON)
    return [(first + n) * size for n in range(int(high / size + EPSILON) - first + 1)], size


def number_label(value: float, distance: float) -> str:
    """A value at an axis whose numbers are that far apart, in few columns."""
    if abs(value) < distance * EPSILON:
        return f"{0:.{_decimals(distance)}f}" if _decimals(distance) < LABEL - 1 else "0"
    if distance < 1000:
        text = f"{value:.{_decimals(distance)}f}"
        if len(text) <= LABEL and float(text):
            return text
    return compact_number(value)


def _decimals(distance: float) -> int:
    """That tell such numbers apart: 0.25 takes one more than 0.2."""
    exponent = math.floor(math.log10(distance) + EPSILON)
    leading = distance / 10.0**exponent
    return min(20, max(0, (abs(leading - round(leading)) > 0.01) - exponent))


def compact_number(value: float) -> str:
    """`0.5`, `125k`, `1.2M`, `3e15`, `1e-5`."""
    size = abs(value)
    for limit, sign in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if limit <= size < 1e12:
            return f"{value / limit:.4g}{sign}"
    text = f"{value:.4g}"
    return text if len(text) <= LABEL and "e" not in text else exponential(value).replace(".0e", "e")


def step_label(step: float, distance: float, last: float) -> str:
    """A step at an axis up to `last` whose numbers are that far apart: `0`, `500`, `0.5k`, `12,340`."""
    if step == 0:
        return "0"
    for limit, unit, sign in ((1e6, 1e6, "M"), (2e3, 1e3, "k")):
        if last >= limit and distance >= unit / 10:
            return f"{step / unit:g}{sign}"
    return f"{step:,.0f}"


def step_ticks(first: float, last: float, width: int) -> Iterator[tuple[float, str]]:
    """Round steps between two, about one every sixteen columns."""
    values, distance = round_numbers(first, last, max(2, width // 16))
    whole = [value for value in values if abs(value - round(value)) < EPSILON]
    for value in whole:
        yield value, step_label(value, distance, last)


def exponential(value: float) -> str:
    """`4.6e-5`, `0`."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return "0" if value == 0 else f"{mantissa}e{int(exponent)}"
