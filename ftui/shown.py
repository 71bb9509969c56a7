"""Foreign text (names, rows, log lines, model output) made safe to print: nothing in it can steer a terminal."""

import unicodedata

_SURROGATES = range(0xD800, 0xE000)
_BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_LINE_ENDS = [0x2028, 0x2029]

_VISIBLE: dict[int, str] = (
    {code: chr(0x2400 + code) for code in range(0x20)}
    | {0x7F: "\u2421"}
    | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
    | {code: f"\\u{code:04x}" for code in [*_BIDI, *_LINE_ENDS, *_SURROGATES]}
)
_VISIBLE_BUT_NEWLINES = {code: text for code, text in _VISIBLE.items() if code != 0x0A}


def shown(text: str, *, newlines: bool = False) -> str:
    """`text` with every control character (C0, C1, DEL, bidi, lone surrogate) visible.

    ESC becomes its picture (U+241B), U+0085 becomes `\\x85`, U+202E becomes `\\u202e`. `newlines` keeps `\\n` as it is,
    for text that may take several lines.
    """
    return text.translate(_VISIBLE_BUT_NEWLINES if newlines else _VISIBLE)


def cells(text: str) -> int:
    """Columns a terminal needs for `text`, which has been through `shown`: 2 for wide characters, 0 for marks."""
    return len(text) if text.isascii() else sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in `…` where something was cut away."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def complaint(message: str, hint: str = "") -> str:
    """An error as a person reads it: what happened, and below it what to do."""
    lines = [f"error: {shown(message, newlines=True)}"]
    if hint:
        lines.append(f"  hint: {shown(hint, newlines=True)}")
    return "\n".join(lines)
