"""What differs between two profiles, key by key, and between two texts, line by line."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ...render.spans import Frame, Line, left, spread, wrapped

KEY = 38
LINE_STYLES = {"+": "good", "-": "bad", "@": "faint"}


@dataclass(frozen=True)
class Difference:
    """One key with its value on either side."""

    name: str
    here: str
    there: str


@dataclass(frozen=True)
class DiffPage:
    """`there`: what it is compared with. `text_lines`: the two texts' difference, where both are texts."""

    there: str
    keys: Sequence[Difference]
    text_lines: Sequence[str] = ()


def diff_title(frame: Frame, page: DiffPage) -> list[Line]:
    """What is compared with what, and how many keys differ."""
    number = "1 key differs " if len(page.keys) == 1 else f"{len(page.keys)} keys differ "
    return [spread(frame.width, [(f" this draft beside {page.there}", "title")], [(number, "muted")])]


def diff_lines(frame: Frame, page: DiffPage) -> list[Line]:
    """All differences, to be scrolled."""
    if not page.keys and not page.text_lines:
        return [[(" Nothing differs.", "muted")]]
    half = max(10, (frame.width - KEY - 6) // 2)
    lines: list[Line] = [
        [("   " + left("", KEY), "faint"), (left("here", half), "faint"), ("  " + left(page.there, half), "faint")]
    ]
    for difference in page.keys:
        sides = zip_longest(wrapped(difference.here, half), wrapped(difference.there, half), fillvalue="")
        for number, (here, there) in enumerate(sides):
            name = "" if number else difference.name
            texts: Line = [(left(here, half), "bright"), ("  " + left(there, half), "muted")]
            lines.append([("   " + left(name, KEY), "text"), *texts])
    if page.text_lines:
        lines += [[], [(" the text ", "title")]]
        lines += [[(f"   {line}", LINE_STYLES.get(line[:1], "muted"))] for line in page.text_lines]
    return lines


def text_difference(here: str, there: str) -> list[str]:
    """The lines that differ, with a line around them; those of the draft with a plus."""
    return list(difflib.unified_diff(there.splitlines(), here.splitlines(), n=1, lineterm=""))[2:]
