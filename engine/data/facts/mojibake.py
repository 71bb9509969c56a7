"""Text that was decoded with the wrong encoding (mojibake), told from honest text of any language."""

import re

# What the bytes 0x80-0xBF of UTF-8 look like when they are read as cp1252, or as Latin-1.
_REST = "\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178"
# Of those, what may stand after a capital letter in honest text: quotation marks, dashes, spaces, signs of trade.
_HONEST = "\u00a0\u00bb\u00ab\u2026\u2018\u2019\u201c\u201d\u201a\u201e\u2013\u2014\u2122\u00ae\u00a9\u00b0\u00b7\u2022\u2039\u203a\u00b2\u00b3\u00b9\u00aa\u00ba\u0160\u0161\u0152\u0153\u017d\u017e\u0178"
# The same of UTF-8 read as cp1251, without the letters of Russian.
_CYRILLIC_REST = "\u0402\u0403\u201a\u0453\u201e\u2026\u2020\u2021\u20ac\u2030\u0409\u2039\u040a\u040c\u040b\u040f\u0452\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u2122\u0459\u203a\u045a\u045c\u045b\u045f\u00a0\u040e\u045e\u0408\u00a4\u0490\u00a6\u00a7\u0401\u00a9\u0404\u00ab\u00ac\u00ad\u00ae\u0407\u00b0\u00b1\u0406\u0456\u0491\u00b5\u00b6\u00b7\u0451\u2116\u0454\u00bb\u0458\u0405\u0455\u0457"
SIGNS = re.compile(
    "|".join(
        [
            "\ufffd",  # what decoders put for bytes they cannot read
            "[\u0080-\u0084\u0086-\u009f]",  # control signs that no text has (U+0085 ends lines in some)
            f"\u00e2[\u20ac\u0080][{_REST}]",  # quotation marks and dashes
            "\u00ef\u00bb\u00bf|\u00ef\u00bf\u00bd",  # a mark of byte order; what U+FFFD becomes
            f"[a-z][\u00c3-\u00c5][{_REST}]",  # caf\u00c3\u00a9: a capital after a small letter
            f"[\u00c3-\u00c5](?![{_HONEST}])[{_REST}][a-z]",  # \u00c3\u00a9tat
            f"(?:[\u00ce\u00cf\u00d0\u00d1\u00d7\u00d8\u00d9][{_REST}]){{3,}}",  # Greek, Cyrillic, Hebrew, Arabic
            f"(?:[\u00e0-\u00ef][{_REST}]{{2}}){{3,}}",  # scripts of three bytes a character
            f"(?:[\u0420\u0421][{_CYRILLIC_REST}]){{3,}}",
            "(?:[\u0192\u201a][^\\s\u0192\u201a]){3,}",  # Shift-JIS read as cp1252
        ]
    )
)
# Letters of Polish, Romanian, Turkish and others read as cp1252: "by\u00b3a". Behind one letter it may be a unit or a power.
_INSIDE = re.compile("[\u00b1\u00b3\u00b6\u00b9\u00bc\u00be\u00bf](?:(?<=[a-z].)(?=[a-z]{2})|(?<=[a-z]{2}.)(?=[a-z]))")
_LATIN_RUN = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff]{6,}")  # cp1251, KOI8-R or GBK read as cp1252
_LEAST_LETTERS = 4
_ACCENTED = "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff"
_SIGNS_BESIDE = (
    "\u00a2-\u00a6\u00ac\u00af\u00b1-\u00b3\u00b6\u00b8\u00b9\u00bc-\u00be"  # bytes of GBK as the letters are
)
_BESIDE = re.compile(f"[{_ACCENTED}]{{6,}}[{_SIGNS_BESIDE}]|[{_SIGNS_BESIDE}][{_ACCENTED}]{{6,}}")
_TWO_RUNS = re.compile(f"(?=(?<![A-Za-z{_ACCENTED}])([{_ACCENTED}]{{2,}})[ ,.;:!?-]{{1,3}}([{_ACCENTED}]{{2,}}))")
# Where it is worth to look closer, as patterns that begin with a set of signs: these are searched for quickly.
_CONTROL = re.compile("[\u0080-\u0084\u0086-\u009f]")
_PART = "\u00a0-\u00ff\u0152-\u0192\u02c6\u02dc\u2013-\u2122"
_SUSPECT = re.compile(f"[{_PART}][{_PART}]+")
_KANA = re.compile("[\u0192\u201a][^\\s\u0192\u201a][\u0192\u201a]")
_CYRILLIC = re.compile(f"[\u0420\u0421][{_CYRILLIC_REST}][\u0420\u0421][{_CYRILLIC_REST}]")


def is_damaged(text: str) -> bool:
    """Whether it holds what only a wrong encoding, or a lost one, makes of text; or NUL signs."""
    if "\0" in text:
        return True
    if text.isascii():
        return False
    if "\ufffd" in text or _CONTROL.search(text) or _INSIDE.search(text):
        return True
    has_run = False
    for match in _SUSPECT.finditer(text):
        near = text[max(0, match.start() - 1) : match.end() + 1]
        if SIGNS.search(near):
            return True
        if not has_run and _is_latin_run(near):
            has_run = True
            if _has_latin_words(text):
                return True
    return _is_damaged_from(text, _KANA) or _is_damaged_from(text, _CYRILLIC)


def _is_damaged_from(text: str, suspect: re.Pattern[str]) -> bool:
    match = suspect.search(text)
    return match is not None and SIGNS.search(text, match.start()) is not None


def _is_latin_run(text: str) -> bool:
    """Six accented letters in a row, four of them different: no language that is written in Latin letters has that."""
    return any(_has_many(run.group()) for run in _LATIN_RUN.finditer(text))


def _has_many(run: str) -> bool:
    return len(set(run.lower())) >= _LEAST_LETTERS


def _has_latin_words(text: str) -> bool:
    """Whether such letters are words, not a list of them, as [a-z\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc\u00df] has one.

    A list has each letter once, and the next one other letters, or all of them and more; words share some.
    """
    if _BESIDE.search(text):
        return True
    runs = {run.group() for run in _LATIN_RUN.finditer(text)}
    if any(_has_many(run) and len(set(run)) < len(run) for run in runs):
        return True
    for match in _TWO_RUNS.finditer(text):
        one, other = (set(word.lower()) for word in match.groups())
        if one & other and not (one <= other or other <= one):
            return True
    return False
