"""Environment variables in the words of a command that is run without a shell: `$NAME` and `${NAME}`."""

import re
from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def variables_of(words: Sequence[str]) -> list[str]:
    """The names of those in the words."""
    return [match[1] or match[2] for word in words for match in _VARIABLE.finditer(word)]


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The words with the values in their places. A value stays part of its word, whatever it holds.

    Raises:
        KeyError: with the name of one that is not set.
    """
    return [_VARIABLE.sub(lambda match: environment[match[1] or match[2]], word) for word in words]
