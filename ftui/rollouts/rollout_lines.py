"""A rollout as its lines in rollouts/NNNNNN.jsonl: a group each, with what its answers got."""

import msgspec


def rollout_name(number: int) -> str:
    """The name of its files, without their endings."""
    return f"{number:06d}"


class AnswerLine(msgspec.Struct, frozen=True):
    """An answer. `rewards` by function, `None` where it gave none; `reward` is their weighted sum."""

    completion: str
    num_tokens: int
    is_complete: bool
    rewards: dict[str, float | None] = {}
    reward: float | None = None
    advantage: float | None = None


class GroupLine(msgspec.Struct, frozen=True):
    """The answers to one prompt, of `row` of the data; prompt and answers as the model has them, marks included."""

    row: int
    prompt: str
    answers: list[AnswerLine]
