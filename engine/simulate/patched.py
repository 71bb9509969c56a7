"""Functions of libraries replaced by others for as long as a block takes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Replacement = tuple[Any, str, Any]
"""Where it stands, its name there, and what stands there instead."""


@contextmanager
def patch_functions(changes: Sequence[Replacement]) -> Iterator[None]:
    kept = [(home, name, getattr(home, name)) for home, name, _ in changes]
    try:
        for home, name, value in changes:
            setattr(home, name, value)
        yield
    finally:
        for home, name, value in kept:
            setattr(home, name, value)
