"""Where a value of a profile comes from, and what is wrong with it, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[str, ...]


@dataclass(frozen=True)
class ValueOrigin:
    """Where a value comes from: `default`, a tier, a file (with the line), or `--set`."""

    layer: str
    line: int | None = None

    def __str__(self) -> str:
        return self.layer if self.line is None else f"{self.layer}:{self.line}"


@dataclass(frozen=True)
class ProfileFault:
    """One fault of a profile.

    Attributes:
        key: of the value that is wrong, of a table that is missing, or the first of those that contradict each other.
        origin: where that value is set; `None` where nothing sets it.
        message: what is wrong, without place and key.
        fix: what to write instead, a whole sentence; empty where the message says it.
        others: the further keys of a contradiction.
        meant: of a key or table that there is not: the one that was probably meant.
    """

    key: Key
    origin: ValueOrigin | None
    message: str
    fix: str = ""
    others: tuple[Key, ...] = ()
    meant: Key | None = None


def origin_of(key: Key, origins: Mapping[Key, ValueOrigin]) -> ValueOrigin | None:
    """Where a value was given, or the first key of a table; `None` where it was not."""
    return next((origin for known, origin in origins.items() if known[: len(key)] == key), None)


def nearest_origin(key: Key, origins: Mapping[Key, ValueOrigin]) -> ValueOrigin | None:
    """The same; for a key that was not given, where the table was that it is missing in."""
    candidates = (origin_of(key[:length], origins) for length in range(len(key), 0, -1))
    return next((origin for origin in candidates if origin is not None), None)
