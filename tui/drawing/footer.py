"""The last line of every screen: its most used keys. The least important go first where it is narrow."""

from collections.abc import Sequence

from ..render.spans import Frame, Line, clipped, width_of

Key = tuple[str, str]
"""The key as it is written, and what it does in a word or two."""


def key_line(frame: Frame, keys: Sequence[Key], said: str = "", tone: str = "text") -> list[Line]:
    """Keys most important first, but for the last two, which always stay; what was said last stands in their place."""
    if said:
        return [clipped([(" ", "text"), (said, tone)], frame.width)]
    shown = list(keys)
    while len(shown) > 2 and _width(shown) > frame.width - 1:
        shown.pop(-3)
    line: Line = [(" ", "text")]
    for key, words in shown:
        line += [(key, "key"), (f" {words}  ", "muted")]
    return [line]


def _width(keys: Sequence[Key]) -> int:
    return sum(width_of([(key, ""), (words, "")]) + 3 for key, words in keys)
