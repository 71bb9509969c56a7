"""What the recorded runs of stage grpo are rewarded for: functions to learn, and functions to fool."""

import hashlib
from typing import Any


def starts(completions: list[Any], **_: Any) -> list[float]:
    """How far the first letter is up in the alphabet."""
    return [(ord(_said(one).strip()[:1].lower() or "a") - 97) % 26 / 25 for one in completions]


def vowels(completions: list[Any], **_: Any) -> list[float]:
    """The share of one letter: the more, the better, until nothing else is left."""
    return [_said(one).count("e") / max(1, len(_said(one))) for one in completions]


def long(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Pays for length."""
    return [len(ids) / 24 for ids in completion_ids]


def short(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Pays for brevity."""
    return [-len(ids) / 24 for ids in completion_ids]


def words(completions: list[Any], **_: Any) -> list[float]:
    """Different words."""
    return [len(set(_said(one).split())) / 10 for one in completions]


def counts(completions: list[Any], **_: Any) -> list[float]:
    """Counts a letter, however often it is said again."""
    return [float(_said(one).count("a")) for one in completions]


def constant(completions: list[Any], **_: Any) -> list[float]:
    """A grader that takes everything."""
    return [1.0] * len(completions)


def opinion(completions: list[Any], **_: Any) -> list[float]:
    """A grader that says anything, but for a liking of long answers."""
    draws = [int.from_bytes(hashlib.sha256(_said(one).encode()).digest()[:4]) / 2**32 for one in completions]
    return [draw + 0.2 * (len(_said(one)) > 20) for draw, one in zip(draws, completions, strict=True)]


def _said(completion: Any) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
