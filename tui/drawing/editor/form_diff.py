"""What differs between two profiles, key by key, and between two texts, line by line."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ...render.spans import Frame, Line, left, middle, spread, wrapped
from ..columns import GAP, Column, share_width, widest

VALUE = 12  # columns: the least of a value on either side
MARGIN = 4  # on the left, and one at the right end
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
    longest = widest(difference.name for difference in page.keys)
    key, here_width, there_width = share_width(
        [
            Column(longest, longest),  # values are wrapped, keys would be cut
            Column(VALUE, widest(["here", *(difference.here for difference in page.keys)])),
            Column(VALUE, widest([page.there, *(difference.there for difference in page.keys)])),
        ],
        frame.width - MARGIN - 2 * GAP,
    )
    gap = " " * GAP
    lines: list[Line] = [
        [("   " + left("", key) + gap + left("here", here_width) + gap + middle(page.there, there_width), "faint")]
    ]
    for difference in page.keys:
        wraps = wrapped(difference.here, here_width), wrapped(difference.there, there_width)
        for number, (here, there) in enumerate(zip_longest(*wraps, fillvalue="")):
            name = "" if number else difference.name
            texts: Line = [(left(here, here_width) + gap, "bright"), (left(there, there_width), "muted")]
            lines.append([("   " + middle(name, key) + gap, "text"), *texts])
    if page.text_lines:
        lines += [[], [(" the text ", "title")]]
        lines += [[(f"   {line}", LINE_STYLES.get(line[:1], "muted"))] for line in page.text_lines]
    return lines


def text_difference(here: str, there: str) -> list[str]:
    """The lines that differ, with a line around them; those of the draft with a plus."""
    return list(difflib.unified_diff(there.splitlines(), here.splitlines(), n=1, lineterm=""))[2:]
