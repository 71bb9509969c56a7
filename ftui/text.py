"""Foreign text (names, rows, log lines, model output) made safe to print: nothing in it can steer a terminal.

Widths come from wcwidth. Cutting and wrapping are done here: its own functions interpret escape sequences, which this
text no longer has, and wrapping in the standard library counts characters instead of columns.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

MOST_SUGGESTIONS = 3
_SURROGATES = range(0xD800, 0xE000)
_BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_LINE_ENDS = [0x2028, 0x2029]
_INVISIBLE = [
    0xAD, 0x34F, 0x115F, 0x1160, 0x180E, 0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0x3164, 0xFEFF, 0xFFA0,
    *range(0xFFF9, 0xFFFC),
]  # fmt: skip
"""What takes no room or none to speak of, joiners of letters excepted: two names that differ must not look the same."""
_TAGS = range(0xE0000, 0xE0080)

_VISIBLE: dict[int, str] = (
    {code: chr(0x2400 + code) for code in range(0x20)}
    | {0x7F: "\u2421"}
    | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
    | {code: f"\\u{code:04x}" for code in [*_BIDI, *_LINE_ENDS, *_INVISIBLE, *_SURROGATES]}
    | {code: f"\\U{code:08x}" for code in _TAGS}
)
_VISIBLE_BUT_NEWLINES = {code: text for code, text in _VISIBLE.items() if code != 0x0A}
_ESCAPES = {code: f"\\u{code:04x}" for code in [*range(0x7F, 0xA0), *_BIDI, *_LINE_ENDS, *_INVISIBLE, *_SURROGATES]}


def shown(text: str, *, newlines: bool = False) -> str:
    """Make every control character (C0, C1, DEL, bidi, lone surrogate) and all that is unseen visible.

    ESC becomes its picture (U+241B), U+0085 becomes `\\x85`, U+202E becomes `\\u202e`. `newlines` keeps `\\n` as it is,
    for text that may take several lines.
    """
    return text.translate(_VISIBLE_BUT_NEWLINES if newlines else _VISIBLE)


def escape_document(document: str) -> str:
    """Write control characters of a JSON document or a TOML value as escapes, where JSON itself lets them through."""
    return document if document.isascii() and "\x7f" not in document else document.translate(_ESCAPES)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`Did you mean a or b? ` (with the blank) for a name that is none of those; nothing where none is like it.

    At most three are named.

    Those that begin with it come first, then those that hold it, then those that are spelled like it.
    """
    from difflib import get_close_matches  # 6 ms, which a right name does not pay

    wanted, known = name.lower(), sorted(set(names))
    if same := [one for one in known if one.lower() == wanted]:
        known = same
    begun = [one for one in known if wanted and one.lower().startswith(wanted)]
    holding = [one for one in known if len(wanted) > 2 and wanted in one.lower()]
    close = [*begun, *holding, *get_close_matches(wanted, known, n=MOST_SUGGESTIONS, cutoff=0.6)]
    likely = list(dict.fromkeys(shown(one) for one in close))[:MOST_SUGGESTIONS]
    return f"Did you mean {' or '.join(likely)}? " if likely else ""


@cache
def _narrow() -> re.Pattern[str]:
    """One column each: ASCII, Latin and all that the screens draw with. Such text never loads wcwidth (20 ms)."""
    return re.compile("[ -~\xa0-\xac\xae-\u02ff\u2010-\u2027\u2190-\u2199\u21b5\u2500-\u25fc\u2800-\u28ff]*")


def is_narrow(text: str) -> bool:
    """Whether each character surely takes one column, whoever counts."""
    return text.isascii() or _narrow().fullmatch(text) is not None


def cells(text: str) -> int:
    """Columns a terminal needs for `text`, which has been through `shown`: 2 for wide characters, 0 for marks.

    Each character counts for itself: terminals disagree on the width of joined emoji.
    """
    return len(text) if is_narrow(text) else sum(map(_cells, text))


@lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    from wcwidth import wcwidth

    return max(0, wcwidth(character))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in `…` where something was cut away."""
    if cells(text) <= width:
        return text
    pieces, width_used = [], 0
    for character in text:
        width_used += _cells(character)
        if width_used > width - 1:
            break
        pieces.append(character)
    return "".join(pieces) + "…" if width > 0 else ""


def cut_front(text: str, width: int) -> str:
    """The end of `text` in at most `width` columns, after a `…` where something was cut away."""
    if cells(text) <= width:
        return text
    while text and cells(text) >= width:
        text = text[1:]
    return f"…{text}" if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """Both ends of `text` in at most `width` columns, with a `…` between them where something was cut away."""
    if cells(text) <= width:
        return text
    tail = max(0, width - 1) // 2
    return cut(text, width - tail) + (cut_front(text, tail + 1)[1:] if tail > 0 else "")


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken between words where that is possible; `\\n` ends a line."""
    lines = []
    for paragraph in shown(text, newlines=True).split("\n"):
        line, width_used = "", 0
        for word in paragraph.split(" "):
            size = cells(word)
            if line and width_used + 1 + size > width:
                lines.append(line)
                line, width_used = word, size
            else:
                line, width_used = (f"{line} {word}", width_used + 1 + size) if line else (word, size)
            if width_used > width > 0:  # a word that is longer than a line
                *full_lines, line = _pieces(line, width)
                lines += full_lines
                width_used = cells(line)
        lines.append(line)
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """The word in pieces of at most `width` columns; a wide character stays whole."""
    start = width_used = 0
    for at, character in enumerate(word):
        size = cells(character)
        if width_used + size > width and at > start:
            yield word[start:at]
            start, width_used = at, 0
        width_used += size
    yield word[start:]


def complaint(message: str, hint: str = "") -> str:
    """An error as a person reads it: what happened, and below it what to do."""
    lines = [f"error: {shown(message, newlines=True)}"]
    if hint:
        lines.append(f"  hint: {shown(hint, newlines=True)}")
    return "\n".join(lines)


BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes


def toml_value(value: object) -> str:
    """A value the way a profile would spell it."""
    import json

    if value is None:
        return '"none"'
    if isinstance(value, dict):
        pairs = (f"{key if BARE.fullmatch(key) else json.dumps(key)} = {toml_value(v)}" for key, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, tuple) and any(isinstance(item, dict) for item in value):
        return f"[{', '.join(map(toml_value, value))}]"
    return escape_document(json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False))
