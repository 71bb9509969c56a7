"""A row as it stands in its file, for a person to read: of a long text the piece that a part of it was made of."""

import json
import re

import msgspec

MOST_RAW = 40_000  # characters
WORDS = 6  # that find a place; the first and the last of a part may be pieces of words
REACH = 400  # characters of a part in which they stand
BLANKS = r"(?:\s|\\[nrt])+"  # in plain text, and in JSON


def raw_text(raw: str, *, is_plain: bool, line: int, part: str = "", share: float = 0.0) -> tuple[str, int | None]:
    """The text, and the line on which it begins where that is not `line`, the row's own.

    `raw` is the row as JSON; of plain text (`is_plain`) its text is told, else JSON with one key a line, numbers and
    doubled keys as they are. `part` is the text of a part, which begins behind `share` (0..1) of all; of a whole row
    it is empty.
    """
    if is_plain:
        text = str(msgspec.json.decode(raw)["text"])
        begin = text.rfind("\n", 0, _place(text, _first_words(part), share)) + 1
        return _shorten(text[begin : _end(text, part, begin)], 0), line + text.count("\n", 0, begin)
    text = _indent_json(raw)
    begin = _place(text, _first_words(part), share)
    return _shorten(text[begin:], begin), None


def _first_words(part: str) -> list[str]:
    return part[:REACH].split()[1 : 1 + WORDS]


def _place(text: str, words: list[str], share: float) -> int:
    """Where these words stand one after the other, the nearest to that share of the text; 0 where they do not."""
    spelt = [json.dumps(word, ensure_ascii=False)[1:-1] for word in words]
    patterns = dict.fromkeys(BLANKS.join(map(re.escape, spelling)) for spelling in (words, spelt) if spelling)
    places = [match.start() for pattern in patterns for match in re.finditer(pattern, text)]
    return min(places, key=lambda at: abs(at - share * len(text)), default=0)


def _end(text: str, part: str, begin: int) -> int:
    """Behind the line with the last words of a part."""
    words = part[-REACH:].split()[-1 - WORDS : -1]
    match = re.search(BLANKS.join(map(re.escape, words)), text[begin : begin + 2 * len(part)]) if words else None
    after = text.find("\n", begin + match.end()) if match is not None else -1
    return len(text) if after < 0 else after


def _indent_json(raw: str) -> str:
    try:
        return msgspec.json.format(raw, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError):  # what is no JSON stays as it is
        return raw.encode("utf-8", "replace").decode()


def _shorten(text: str, num_before: int) -> str:
    before = f"... {num_before:,} characters before\n" if num_before else ""
    return before + (
        text if len(text) <= MOST_RAW else f"{text[:MOST_RAW]}\n... {len(text) - MOST_RAW:,} more characters"
    )
