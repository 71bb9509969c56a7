"""Tasks with answers that a program knows: rows for stage grpo, the same for the same seed on every machine.

Each row has a prompt and an `answer`; which reward fits is with the task. How hard a task is lies in `level`, from 1.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

Made = tuple[str, str]
"""A question and its answer."""

LONGEST_LEVEL = 12
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FACTORS = {
    ("km", "m"): Fraction(1000), ("m", "cm"): Fraction(100), ("cm", "mm"): Fraction(10), ("kg", "g"): Fraction(1000),
    ("h", "min"): Fraction(60), ("min", "s"): Fraction(60), ("days", "h"): Fraction(24), ("l", "ml"): Fraction(1000),
}  # fmt: skip


class MadeTask(NamedTuple):
    """What makes a row, the reward that judges its answers, and what it is, in words."""

    make: Callable[[random.Random, int], Made]
    reward: str
    words: str


def _sum(draw: random.Random, level: int) -> Made:
    numbers = [draw.randrange(10**level) for _ in range(2)]
    return f"{numbers[0]} + {numbers[1]} = ?", str(sum(numbers))


def _sorting(draw: random.Random, level: int) -> Made:
    numbers = draw.sample(range(100), level + 2)
    wanted = " ".join(map(str, sorted(numbers)))
    return f"Sort in ascending order, separated by spaces: {' '.join(map(str, numbers))}", wanted


def _letters(draw: random.Random, level: int) -> Made:
    letters = draw.sample(_LETTERS, 3)
    word = "".join(draw.choice(letters) for _ in range(3 * level + 1))
    return f"How often does the letter {letters[0]} occur in {word}?", str(word.count(letters[0]))


def _format(draw: random.Random, level: int) -> Made:
    """The answer is known; it is the form of it that has to be learned."""
    word = "".join(draw.choice(_LETTERS) for _ in range(level + 2))
    return (
        f"Write this word between <answer> and </answer>, and nothing else: {word}",
        f"<answer>{word}</answer>",
    )


def _units(draw: random.Random, level: int) -> Made:
    (big, small), factor = draw.choice(sorted(_FACTORS.items()))
    number = draw.randrange(1, 10**level)
    if draw.random() < 0.5:
        return f"How many {small} are {number} {big}?", str(number * factor)
    return f"How many {big} are {number * factor} {small}?", str(number)


TASKS = {
    "sums": MadeTask(_sum, "number_answer", "the sum of two numbers of up to LEVEL digits"),
    "sorting": MadeTask(_sorting, "exact_answer", "LEVEL + 2 numbers below 100 in ascending order"),
    "letters": MadeTask(_letters, "number_answer", "how often a letter occurs in a word of 3 x LEVEL + 1 letters"),
    "format": MadeTask(_format, "exact_answer", "a word of LEVEL + 2 letters between two marks"),
    "units": MadeTask(_units, "number_answer", "lengths, weights and times in another unit, up to LEVEL digits"),
}
"""By name, in the order in which they are listed."""


def make_rows(name: str, num_rows: int, *, seed: int = 0, level: int = 2) -> Iterator[Made]:
    """Questions with their answers, row n of which depends on the task, its level, the seed and n alone."""
    for number in range(num_rows):
        yield TASKS[name].make(random.Random(f"{name} {level} {seed} {number}"), level)
