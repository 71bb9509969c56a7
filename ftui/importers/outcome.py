"""What an import came to, as plain values."""

from dataclasses import dataclass
from typing import Any

Key = tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """A key of the other tool that is in the profile.

    Attributes:
        foreign: its name in the file, such as `datasets[0].path`.
        ours: the profile's key, such as `data.train`.
        value: what the profile says there. Several foreign keys may say one of ours.
    """

    foreign: str
    ours: str
    value: Any


@dataclass(frozen=True)
class Dropped:
    """A key of the other tool that is not in the profile.

    Attributes:
        foreign: its name in the file.
        value: as given; a secret is replaced by `***`.
        reason: why, as a part of a sentence.
        matters: whether training or its result is another one without it.
    """

    foreign: str
    value: Any
    reason: str
    matters: bool = False


@dataclass(frozen=True)
class Imported:
    """A whole import.

    Attributes:
        text: the profile, TOML with comments.
        carried, dropped: between them every value of the file, each once.
        kind: whose file it is, such as `LLaMA-Factory`.
        unsaid: what the file does not say and is chosen here, a line each.
        missing: what the profile still needs before it can be run, a line each.
        refused: why there is nothing to be run yet; empty where there is.
    """

    text: str
    carried: tuple[Carried, ...]
    dropped: tuple[Dropped, ...]
    kind: str
    missing: tuple[str, ...] = ()
    refused: str = ""
    unsaid: tuple[str, ...] = ()
