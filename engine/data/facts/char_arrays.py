"""Texts as arrays of their characters, so that thousands of them are looked at in one go."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np

LAST = 0x33FFF  # the last character with an entry of its own in a table: after it come no letters
_BOUNDS = (0x100, 0x3000, 0x10000, 0x20000, LAST + 1)
_THAI = 0x0E00  # before it all scripts have spaces between words
OTHER, LETTER, ALONE = 0, 1, 2  # kinds: parts no word, part of a word, a word by itself
# Written without spaces between words: there each character is taken for one.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI")
_MOST = 1 << 16  # characters that are looked at together: their arrays stay in the processor's cache


def codes_of(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All code points (uint32; one of a line end after each text) and where each text begins (int64, and the end)."""
    joined = "\n".join([*texts, ""])
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) + 1 for text in texts], out=starts[1:])
    return np.minimum(codes, LAST), starts


def in_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, as many at a time as have 64 Ki characters together (one at least): memory is bounded."""
    portion: list[str] = []
    size = 0
    for text in texts:
        if portion and size + len(text) > _MOST:
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += len(text)
    if portion:
        yield portion


class Table:
    """A number for each code point, worked out up to a bound when a character beyond the last one is met.

    All of them would take half a second in every process; most texts need the first 256, or the first 12,288.
    """

    def __init__(self, entry: Callable[[int], int], dtype: np.dtype) -> None:
        self._entry = entry
        self._numbers = np.zeros(LAST + 1, dtype=dtype)
        self._known = 0

    def of(self, codes: np.ndarray) -> np.ndarray:
        """The numbers of these code points."""
        most = int(codes.max(initial=0))
        if most >= self._known:
            bound = next(bound for bound in _BOUNDS if bound > most)
            self._numbers[self._known : bound] = [self._entry(code) for code in range(self._known, bound)]
            self._known = bound
        return np.asarray(self._numbers[codes])


def _kind(code: int) -> int:
    if unicodedata.category(sign := chr(code))[0] not in "LNM":
        return OTHER
    return ALONE if code >= _THAI and unicodedata.name(sign, "").startswith(_UNSPACED) else LETTER


def lower_code(code: int) -> int:
    """The code point of the small letter."""
    small = chr(code).lower()
    return ord(small) if len(small) == 1 else code


KINDS = Table(_kind, np.dtype(np.uint8))
"""For each code point whether it is a part of a word."""
