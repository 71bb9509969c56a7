"""Rows of the tasks of reasoning-gym (https://github.com/open-thought/reasoning-gym), which has a scorer for each.

A row keeps how its question is made, not what the scorer needs: that has tuples and keys that are no text, which JSON
does not keep.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

PREFIX = "reasoning-gym:"
"""`ftui make-task reasoning-gym:NAME`."""
COLUMN = "reasoning_gym"
"""The column of a row that says how its question is made, and the reward that reads it."""


class GymRow(NamedTuple):
    """A question, one right answer (`None` where there are many), and how it is made: task, rows, seed, number."""

    question: str
    answer: str | None
    made: str


def make_gym_rows(task: str, num_rows: int, *, seed: int) -> Iterator[GymRow]:
    """The rows of a task, with reasoning-gym's own settings.

    Raises:
        ValueError: reasoning-gym is not installed, or has no such task; in words.
    """
    tasks = _load()
    if task not in tasks.factory.DATASETS:
        raise ValueError(f"reasoning-gym has no task {task!r}; it has {', '.join(sorted(tasks.factory.DATASETS))}")
    for number, entry in enumerate(_dataset(task, num_rows, seed)):
        answer = None if entry["answer"] is None else str(entry["answer"])
        yield GymRow(entry["question"], answer, f"{task} {num_rows} {seed} {number}")


def gym_score(made: str, question: str, answer: str) -> float:
    """What the task's scorer gives for an answer, from 0 to 1.

    Raises:
        ValueError: reasoning-gym is not installed, or makes another question of this row.
    """
    task, num_rows, seed, number = made.split(" ")
    entry = _dataset(task, int(num_rows), int(seed))[int(number)]
    if entry["question"] not in question:
        raise ValueError(f"row {made!r} was made by another version of reasoning-gym: it asks something else now")
    return float(_scorer(task)(answer=answer, entry=entry))


@cache
def _dataset(task: str, num_rows: int, seed: int) -> Any:
    return _load().create_dataset(task, size=num_rows, seed=seed)


@cache
def _scorer(task: str) -> Callable[..., float]:
    score: Callable[..., float] = _load().get_score_answer_fn(task)
    return score


def _load() -> Any:
    try:
        import reasoning_gym
        import reasoning_gym.factory
    except ModuleNotFoundError as error:
        raise ValueError("it needs reasoning-gym: pip install 'finetune-tui[reasoning-gym]'") from error
    return reasoning_gym
