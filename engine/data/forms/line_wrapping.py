"""Text that was broken into lines of one width: the lines of a paragraph joined again."""

import re
from itertools import pairwise

import numpy as np

WIDTHS = range(40, 121)  # characters to which people and programs break lines
FEWEST = 20  # line ends within paragraphs, below which nothing can be said about a text
PARAGRAPHS = re.compile(r"((?:[ \t]*\n){2,})")
SLACK = 0.9  # an end is forced where the next word would have made the line longer than this share of the width


def unwrap_lines(text: str) -> tuple[str, int]:
    """The text, its wrapped paragraphs each in one line, and how many line ends that took; (text, 0) for others.

    Where a text is wrapped, a line ends because the next word did not fit. Verse, code, lists and tables end their
    lines elsewhere: such paragraphs stay as they are, and so does a text in which they prevail.
    """
    if text.count("\n") < FEWEST:
        return text, 0
    parts = PARAGRAPHS.split(text.replace("\r\n", "\n"))
    paragraphs = [part.split("\n") for part in parts[::2]]
    width = _width(paragraphs)
    if width is None:
        return text, 0
    num_joined = 0
    for number, lines in enumerate(paragraphs):
        while lines and not lines[-1]:  # the end of the text
            lines = lines[:-1]
        if len(lines) > 1 and _is_wrapped(lines, width):
            rest = "\n" * (len(paragraphs[number]) - len(lines))
            parts[2 * number] = _join_lines(lines) + rest
            num_joined += len(lines) - 1
    return ("".join(parts), num_joined) if num_joined else (text, 0)


def _width(paragraphs: list[list[str]]) -> int | None:
    """The width to which this text is wrapped; `None` where it is not."""
    ends = [pair for lines in paragraphs for pair in pairwise(lines) if all(pair)]
    if len(ends) < FEWEST:
        return None
    lengths = np.array([len(line.rstrip()) for line, _ in ends])
    width = int(np.quantile(lengths, 0.98))
    commonest = np.bincount(lengths).max() / len(lengths)
    words = np.array([len(line.split()) for line, _ in ends])
    if width not in WIDTHS or commonest > 0.5 or np.median(words) < 4:  # a table; a script without spaces
        return None
    forced = sum(_is_forced(line, following, width) for line, following in ends)
    return width if forced >= 0.8 * len(ends) else None


def _is_forced(line: str, following: str, width: int) -> bool:
    word = following.split(maxsplit=1)
    return bool(word) and len(line.rstrip()) + 1 + len(word[0]) > SLACK * width


def _is_wrapped(lines: list[str], width: int) -> bool:
    if any(line[:1] in (" ", "\t") for line in lines[1:]):
        return False
    ends = list(pairwise(lines))
    return sum(_is_forced(line, following, width) for line, following in ends) >= 0.75 * len(ends)


def _join_lines(lines: list[str]) -> str:
    """A hyphen or dash at the end of a line stood there before the text was wrapped: no space follows it."""
    text = lines[0].rstrip()
    for line in lines[1:]:
        text += ("" if re.search(r"\w[-—]$|--$", text) else " ") + line.strip()
    return text
