"""Texts that are nearly the same, found without comparing each with each.

A text is the set of its runs of three words (case and punctuation aside). How alike two texts are is the share of
those that both have of those that either has (Jaccard's index). 32 hash functions each keep the least hash of a set:
two texts have the same least one with just that probability (Broder 1997, "On the resemblance and containment of
documents"). Four of them are one of eight bands, and texts with a band in common are candidates: of those that are
alike by 0.8, 98.5 in 100; of those alike by 0.5, 40; by 0.2, 1.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from ...system.distinct import distinct
from .char_arrays import ALONE, KINDS, LETTER, Table, codes_of, in_batches, lower_code

NUM_HASHES = 32
NUM_BANDS = 8
LONGEST = 20_000  # characters of a text that are looked at
LIKE = 0.8
LEAST_ALIKE = 22  # of the hashes: a share of 0.69, for 32 of them miss the truth by 0.07
_PAIRS = 1 << 16  # that are looked at together
_MIX = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0xD1342543DE82EF95)  # of the polynomials: odd, so that it can be divided by
_random = np.random.default_rng(0x51317A7)
_TIMES = _random.integers(0, 2**32, NUM_HASHES, dtype=np.uint32) | np.uint32(1)
_WITH = _random.integers(0, 2**32, NUM_HASHES, dtype=np.uint32)


def hash_bands(texts: Sequence[str]) -> np.ndarray:
    """Eight bands of each text (n, 8; uint64), zeros for one without words. Of a long one the beginning counts."""
    parts = [_bands(portion) for portion in in_batches([text[:LONGEST] for text in texts])]
    return np.concatenate(parts) if parts else np.zeros((0, NUM_BANDS), dtype=np.uint64)


def _bands(texts: list[str]) -> np.ndarray:
    runs, counts = word_runs(texts)
    found = np.zeros((len(texts), NUM_BANDS), dtype=np.uint64)
    there = np.flatnonzero(counts)
    if not len(there):
        return found
    begins = (np.cumsum(counts) - counts)[there]
    short = (runs >> np.uint64(32)).astype(np.uint32)
    least = np.empty((len(there), NUM_HASHES), dtype=np.uint16)
    hashed = np.empty_like(short)
    for number in range(NUM_HASHES):
        np.bitwise_xor(short, _WITH[number], out=hashed)
        np.multiply(hashed, _TIMES[number], out=hashed)
        minima = np.minimum.reduceat(hashed, begins)
        least[:, number] = (minima * np.uint32(0x9E3779B1)) >> np.uint32(16)
    found[there] = least.view("<u8")
    return found


def likely_pairs(bands: np.ndarray) -> np.ndarray:
    """Pairs of texts that have a band in common and look alike by most hashes (n, 2, int32; the earlier text first).

    In a band every text is compared with the first one that has it and with the one before: not each with each.
    """
    number = max(1, len(bands))
    found = np.zeros(0, dtype=np.int64)  # number of the earlier text * number of all + number of the later one
    for band in range(NUM_BANDS):
        order, later, earlier = _neighbours(bands[:, band])
        keys = [found]
        for start in range(0, len(later), _PAIRS):
            one, other = order[earlier[start : start + _PAIRS]], order[later[start : start + _PAIRS]]
            alike = _look_alike(bands, one, other)  # `order` is stable: the earlier text is the one before
            keys.append(one[alike] * np.int64(number) + other[alike])
        found = distinct(np.concatenate(keys))  # band by band: all at once are 300 MB for a million texts
    pairs = np.empty((len(found), 2), dtype=np.int32)
    pairs[:, 0], pairs[:, 1] = found // number, found % number
    return pairs


def _neighbours(band: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The texts in the order of their band, and places in it to compare: later ones, and for each an earlier one."""
    order = np.argsort(band, kind="stable").astype(np.int32)
    ordered = band[order]
    begins = np.concatenate([[True], (ordered[1:] != ordered[:-1]) | (ordered[1:] == 0)])
    later = np.flatnonzero(~begins).astype(np.int32)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order), dtype=np.int32), np.int32(0)))[later]
    between = later[first != later - 1]
    return order, np.concatenate([later, between]), np.concatenate([first, between - 1])


def _look_alike(bands: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The mask of the pairs that have at least `LEAST_ALIKE` of the 32 hashes in common."""
    hashes = (np.ascontiguousarray(bands[side]).view("<u2") for side in (one, other))
    return np.asarray((next(hashes) == next(hashes)).sum(axis=1) >= LEAST_ALIKE)


def group_by_pairs(number: int, pairs: np.ndarray) -> np.ndarray:
    """For `number` things the least thing (int64) that each hangs together with by the pairs (n, 2)."""
    least = np.arange(number, dtype=np.int64)
    while True:
        before = least.copy()
        for start in range(0, len(pairs), _PAIRS):
            one, other = pairs[start : start + _PAIRS].T
            both = np.minimum(least[one], least[other])
            for side in (one, other):
                np.minimum.at(least, side, both)
                np.minimum.at(least, before[side], both)
        least = least[least]
        if np.array_equal(least, before):
            return least


def word_runs(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes (uint64) of every three words that follow each other, and how many of them each text has.

    The last two of a text stand with nothing after them, so that one word has a run too.
    """
    codes, starts = codes_of(texts)
    kind = KINDS.of(codes)
    inside, alone = kind == LETTER, kind == ALONE
    before = np.concatenate([[False], inside[:-1]])
    after = np.concatenate([inside[1:], [False]])
    begins = np.flatnonzero(inside & ~before | alone)
    ends = np.flatnonzero(inside & ~after | alone) + 1
    first = np.searchsorted(begins, starts)  # the number of the first word of each text
    counts = np.diff(first)
    words = _word_hashes(codes, begins, ends)
    padded = np.zeros(len(words) + 2 * len(texts) + 2, dtype=np.uint64)
    places = np.arange(len(words)) + 2 * np.repeat(np.arange(len(texts)), counts)
    padded[places] = words
    return _mixed(words + padded[places + 1] * _MIX + padded[places + 2] * _BASE), counts


def _word_hashes(codes: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """A hash of each word by differences of a running sum: sum(value of letter i * base^i) / base^begin, mod 2^64."""
    powers, inverses = _powers(len(codes).bit_length())
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    np.cumsum(_VALUES.of(codes) * powers[: len(codes)], out=sums[1:])
    return _mixed((sums[ends] - sums[begins]) * inverses[begins])


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Every bit depends on every other one (the finaliser of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


@cache
def _powers(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The powers of the base up to 2^bits, and their inverses, modulo 2^64."""
    inverse = np.uint64(pow(int(_BASE), -1, 2**64))
    both = []
    for base in (_BASE, inverse):
        factors = np.full(1 << bits, base, dtype=np.uint64)
        factors[0] = 1
        both.append(np.cumprod(factors, dtype=np.uint64))
    return both[0], both[1]


def _value(code: int) -> int:
    """A number for each letter, the same for capital and small ones (splitmix64 of its code)."""
    number = (lower_code(code) + 1) * int(_MIX) % 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


_VALUES = Table(_value, np.dtype(np.uint64))
