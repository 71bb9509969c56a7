"""Which rewards a run has, as the engine and its workers tell each other."""

import hashlib
from typing import Any

import msgspec

CODE_MARK = ".py:"
"""A reward `FILE.py:NAME` is the function NAME of a person's file; any other is one of ftui's by name."""


class RewardSpec(msgspec.Struct, frozen=True):
    """A reward: its name in tables and logs, what computes it, and its weight in the sum.

    `function`: a name of `ready_rewards.READY`, or `FILE.py:NAME`, and then `code` is the text of that file, to which
    somebody has consented. `options`: arguments of a ready one.
    """

    name: str
    function: str
    weight: float = 1.0
    options: dict[str, Any] = {}
    code: str | None = None

    @property
    def is_code(self) -> bool:
        """Whether a person's file has it."""
        return CODE_MARK in self.function


def code_hash(code: str) -> str:
    """SHA-256 (hex) of the text that a consent is to."""
    return hashlib.sha256(code.encode()).hexdigest()


class AnswersToScore(msgspec.Struct, frozen=True):
    """What a function is asked to judge: one entry for each answer everywhere, in their order.

    `prompts` and `completions` are texts, or lists of messages where the rows are conversations, as TRL has them.
    """

    prompts: list[Any]
    completions: list[Any]
    completion_ids: list[list[int]]
    columns: dict[str, list[Any]]


class Judgement(msgspec.Struct, frozen=True):
    """What a function said. `values`: one for each answer, `None` where it has none; without them, `error` says why.

    `is_wrong`: it gave something that is no list of rewards, and would again. `num_odd`: values that were NaN or
    infinite.
    """

    values: list[float | None] | None = None
    error: str = ""
    is_wrong: bool = False
    num_odd: int = 0
