"""Which scripts the letters of a text belong to: the nearest thing to its languages that can be counted for certain."""

import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from .char_arrays import Table, codes_of, in_batches

# First words of the Unicode names of letters, and what is said for them. Chinese and Japanese share their Han letters.
_NAMED = {
    "LATIN": "Latin", "FULLWIDTH": "Latin", "GREEK": "Greek", "CYRILLIC": "Cyrillic", "ARMENIAN": "Armenian",
    "HEBREW": "Hebrew", "ARABIC": "Arabic", "DEVANAGARI": "Devanagari", "BENGALI": "Bengali", "GURMUKHI": "Gurmukhi",
    "GUJARATI": "Gujarati", "TAMIL": "Tamil", "TELUGU": "Telugu", "KANNADA": "Kannada", "MALAYALAM": "Malayalam",
    "SINHALA": "Sinhala", "THAI": "Thai", "LAO": "Lao", "TIBETAN": "Tibetan", "MYANMAR": "Burmese",
    "GEORGIAN": "Georgian", "HANGUL": "Hangul", "ETHIOPIC": "Ethiopic", "KHMER": "Khmer", "MONGOLIAN": "Mongolian",
    "CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "HALFWIDTH": "Kana",
}  # fmt: skip
JAPANESE = 0.1  # of Kana and Han the share of Kana, from which on it is that: newspapers have about half
NAMES = ("", *dict.fromkeys(_NAMED.values()), "other")


def count_scripts(texts: Sequence[str]) -> dict[str, int]:
    """Letters by script, those there are; digits, signs and spaces belong to none."""
    totals = np.zeros(len(NAMES), dtype=np.int64)
    for portion in in_batches(texts):
        codes, _ = codes_of(portion)
        totals += np.bincount(_SCRIPTS.of(codes), minlength=len(NAMES))
    return {NAMES[number]: int(totals[number]) for number in range(1, len(NAMES)) if totals[number]}


def join_japanese(letters: Mapping[str, int]) -> dict[str, int]:
    """Scripts that one language is written in counted together, the most first: Kana among Han is Japanese."""
    kana, han = letters.get("Kana", 0), letters.get("Han", 0)
    counts = dict(letters)
    if kana and han and kana >= JAPANESE * (kana + han):
        counts = {name: number for name, number in letters.items() if name not in ("Kana", "Han")}
        counts["Japanese"] = kana + han
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _script(code: int) -> int:
    """The number of a letter's script in `NAMES`, 0 for what is no letter."""
    sign = chr(code)
    if not sign.isalpha():
        return 0
    return NAMES.index(_NAMED.get(unicodedata.name(sign, "").partition(" ")[0], "other"))


_SCRIPTS = Table(_script, np.dtype(np.uint8))
