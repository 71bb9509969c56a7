"""The text of a profile with colours for heads of tables, keys, values and comments, and the cursor's line marked."""

import re
from collections.abc import Collection, Iterator

from ...render.spans import Frame, Line, Span, on_cursor, right, spread

_TOKENS = re.compile(
    r'(?P<remark>#.*)|(?P<text>"""(?:[^\\]|\\.)*?(?:"""|$)|\'\'\'.*?(?:\'\'\'|$)|"(?:[^"\\]|\\.)*"?|\'[^\']*\'?)'
    r"|(?P<number>[-+]?\b\d[\d_.eE+-]*\b|\b(?:nan|inf)\b)|(?P<word>\b(?:true|false)\b)|(?P<other>[^#\"'\d]+?(?=[#\"'\d+-]|\b|$)|.)"
)
_KEY = re.compile(r"(\s*(?:[\w.-]+|\"[^\"]*\"|'[^']*'|\s*\.\s*)+\s*)(=)(.*)")
_HEAD = re.compile(r"(\s*\[[^#]*\]\s*)(#.*)?$")
STYLES = {"remark": "faint", "text": "good", "number": "loss", "word": "eval", "other": "text"}
MULTI = ('"""', "'''")


def toml_lines(frame: Frame, text: str, *, at: int | None, wrong: Collection[int], top: int) -> list[Line]:
    """The lines from `top` on. `at`: the line under the cursor (from 1); `wrong`: lines with a fault in them."""
    digits = len(str(text.count("\n") + 1))
    inside = ""
    lines: list[Line] = []
    for number, line in enumerate(text.split("\n"), start=1):
        spans, inside = _spans(line.removesuffix("\r"), inside)
        if number <= top or len(lines) >= frame.height:
            continue
        mark = ("!", "bad") if number in wrong else (" ", "faint")
        row: Line = [mark, (right(str(number), digits) + "  ", "faint"), *spans]
        lines.append(on_cursor(spread(frame.width, row)) if number == at else row)
    return lines


def _spans(line: str, inside: str) -> tuple[list[Span], str]:
    """The pieces of a line, and the quotes of a text of several lines that goes on in the next one."""
    if inside:
        end = line.find(inside)
        if end < 0:
            return [(line, STYLES["text"])], inside
        rest = end + 3
        return [(line[:rest], STYLES["text"]), *_values(line[rest:])], ""
    if match := _HEAD.match(line):
        return [(match[1], "title"), *([(match[2], "faint")] if match[2] else [])], ""
    if match := _KEY.match(line):
        spans: list[Span] = [(match[1], "muted"), (match[2], "faint"), *_values(match[3])]
        return spans, _left_open(match[3])
    return list(_values(line)), _left_open(line)


def _left_open(text: str) -> str:
    return next((quotes for quotes in MULTI if text.count(quotes) % 2), "")


def _values(text: str) -> Iterator[Span]:
    for match in _TOKENS.finditer(text):
        yield match[0], STYLES[match.lastgroup or "other"]
