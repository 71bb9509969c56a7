"""What a training starts from: the files of a base model, and of an adapter."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StartingPoint:
    """What a training starts from.

    `folder` and `commit` are those of the base model, `adapter` is the one to continue from (`None` for new ones).
    `new_token_ids` are entries of the tokenizer that the profile has added: the base was not trained on them.
    """

    folder: Path | None
    commit: str | None
    adapter: Path | None
    new_token_ids: tuple[int, ...]
