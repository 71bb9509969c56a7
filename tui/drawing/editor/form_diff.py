"""What differs between two profiles, key by key, and between two texts, line by line."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

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
    number = (
        f"{len(page.keys)} key"
        + ("" if len(page.keys) == 1 else "s")
        + " differ"
        + ("s " if len(page.keys) == 1 else " ")
    )
    return [spread(frame.width, [(f" this draft beside {page.there}", "title")], [(number, "muted")])]


def diff_lines(frame: Frame, page: DiffPage) -> list[Line]:
    """All of it, to be scrolled."""
    if not page.keys and not page.text_lines:
        return [[(" Nothing differs.", "muted")]]
    half = max(10, (frame.width - KEY - 6) // 2)
    lines: list[Line] = [
        [("   " + left("", KEY), "faint"), (left("here", half), "faint"), ("  " + left(page.there, half), "faint")]
    ]
    for one in page.keys:
        here, there = wrapped(one.here, half), wrapped(one.there, half)
        for number in range(max(len(here), len(there))):
            name = one.name if number == 0 else ""
            pair = [texts[number] if number < len(texts) else "" for texts in (here, there)]
            lines.append(
                [
                    ("   " + left(name, KEY), "text"),
                    (left(pair[0], half), "bright"),
                    ("  " + left(pair[1], half), "muted"),
                ]
            )
    if page.text_lines:
        lines += [[], [(" the text ", "title")]]
        for line in page.text_lines:
            lines.append([(f"   {line}", LINE_STYLES.get(line[:1], "muted"))])
    return lines


def text_difference(here: str, there: str) -> list[str]:
    """The lines that differ, with a line around them; those of the draft with a plus."""
    found = difflib.unified_diff(there.splitlines(), here.splitlines(), n=1, lineterm="")
    return list(found)[2:]
