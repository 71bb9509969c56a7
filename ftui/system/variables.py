"""Environment variables among the words of a command that is run without a shell: a word `$NAME` or `${NAME}`.

Only whole words: what is handed to a shell (`sh -c "..."`) has its own variables, which are left to that shell.
"""

import re
from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)


def variables_of(words: Sequence[str]) -> list[str]:
    """The names of those in the words."""
    return [match[1] or match[2] for word in words if (match := _VARIABLE.fullmatch(word))]


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The words with the values in their places.

    Raises:
        KeyError: with the name of one that is not set.
    """
    return [environment[match[1] or match[2]] if (match := _VARIABLE.fullmatch(word)) else word for word in words]
