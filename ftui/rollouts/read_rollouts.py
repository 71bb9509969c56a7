"""The rollouts of a run, read from its folder while it may be writing more."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ftui.errors import DiskError, UsageError
from ftui.rollouts.rollout_lines import AnswerLine, GroupLine, rollout_name
from ftui.system.files import DAMAGED, read_plain

Order = Literal["newest", "best", "worst", "longest"]
LONGEST_FILE = 1 << 30
NEWEST = 20
"""Rollouts that best, worst and longest answers are looked for in, unless one is named."""

_FILE = re.compile(r"([0-9]{6,})\.jsonl")


class SeenGroup(msgspec.Struct, frozen=True):
    """A group with the number of its rollout and its place there, from 1; its answers in the order asked for."""

    rollout: int
    place: int
    group: GroupLine


def rollout_numbers(folder: Path) -> list[int]:
    """The numbers of the scored rollouts in a run's folder of them, in their order."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for match in map(_FILE.fullmatch, names) if match)


def read_groups(folder: Path, number: int) -> list[SeenGroup]:
    """The groups of a rollout, in its order.

    Raises:
        DiskError: it is missing, or is not what a run writes.
    """
    path = folder / f"{rollout_name(number)}.jsonl"
    try:
        lines = read_plain(path, LONGEST_FILE).splitlines()
        groups = [msgspec.json.decode(line, type=GroupLine) for line in lines]
    except (OSError, *DAMAGED) as error:
        raise DiskError(f"{path} cannot be read: {error}.") from error
    return [SeenGroup(number, place, group) for place, group in enumerate(groups, start=1)]


def find_groups(folder: Path, order: Order = "newest", number: int | None = None) -> list[SeenGroup]:
    """Groups in the order that is asked for: of rollout `number`, or the newest ones.

    `newest`: of the newest rollout, in its order. `best`, `worst`: by reward, the best (worst) answer of a group first,
    and groups by it; one without a reward comes last. `longest`: by tokens.

    Raises:
        UsageError: there is no such rollout.
        DiskError: one cannot be read.
    """
    numbers = rollout_numbers(folder)
    if number is not None and number not in numbers:
        there = f"There are {numbers[0]} to {numbers[-1]}." if numbers else "There is none yet."
        raise UsageError(f"{folder.parent.name} has no rollout {number}.", hint=there)
    chosen = [number] if number is not None else numbers[-1:] if order == "newest" else numbers[: -NEWEST - 1 : -1]
    found = [group for one in chosen for group in read_groups(folder, one)]
    if order == "newest":
        return found
    key = _KEYS[order]
    found = [msgspec.structs.replace(one, group=_sorted(one.group, key)) for one in found]
    return sorted(found, key=lambda one: min(map(key, one.group.answers), default=(1, 0.0)))


def _sorted(group: GroupLine, key: Callable[[AnswerLine], tuple[int, float]]) -> GroupLine:
    return msgspec.structs.replace(group, answers=sorted(group.answers, key=key))


def _by_reward(answer: AnswerLine) -> tuple[int, float]:
    return (1, 0.0) if answer.reward is None else (0, answer.reward)


_KEYS: dict[str, Callable[[AnswerLine], tuple[int, float]]] = {
    "best": lambda answer: (_by_reward(answer)[0], -_by_reward(answer)[1]),
    "worst": _by_reward,
    "longest": lambda answer: (0, -float(answer.num_tokens)),
}


def reward_names(groups: Sequence[SeenGroup]) -> list[str]:
    """The reward functions, in the order of the profile."""
    return list(dict.fromkeys(name for one in groups for answer in one.group.answers for name in answer.rewards))
