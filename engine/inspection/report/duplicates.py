"""Rows that say the same, exactly or nearly: among the rows to train on, and between those and the evaluation's."""

from typing import NamedTuple

import msgspec
import numpy as np

from ...data.facts.near_duplicates import LIKE
from ...system.distinct import distinct
from .row_index import RowIndex

MOST_PAIRS = 50_000  # that are compared token by token: 2 s
MOST_TOKENS = 1 << 26  # of them all: 10 s
EXAMPLES = 3
LEAST_TRAINED = 32  # tokens of an answer that is hardly given to two different questions
MANY_TRAINED = 96  # of one that is the same text again, whatever was asked
FEW = 8  # tokens that may be others in a prompt, wherever they stand: a word or two
LONGEST = 1 << 15  # tokens of a row that are compared: of longer ones as many from both ends
LONG = 2048  # tokens from which on runs of nine are compared: a long row has most runs of three digits there are
_PORTION = 1 << 18  # tokens that are compared together
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MORE = np.uint64(0xD1342543DE82EF95)


class Matches(msgspec.Struct, frozen=True, array_like=True):
    """`count` rows and the first of them, each with the earlier row it is like (numbers over all sources)."""

    count: int = 0
    examples: list[tuple[int, int]] = []
    is_least: bool = False  # there may be more: not all that could be were compared


class Comparison(msgspec.Struct, frozen=True):
    """What `compared` finds. Numbers of rows go over the rows to train on and then over those to evaluate on."""

    duplicates: Matches = Matches()
    similar: Matches = Matches()
    prompts: Matches = Matches()
    leaked: Matches = Matches()
    contradicting: Matches = Matches()
    ranked: Matches = Matches()


def compare_rows(rows: RowIndex, num_trained: int, likely: np.ndarray) -> Comparison:
    """The first `num_trained` rows are trained on. Of the `likely` pairs, those count whose tokens are alike too."""
    content = rows.column("content")
    first, uniques = _first_of(content)
    trained = np.flatnonzero(content[:num_trained])
    duplicates = trained[first[trained] != trained]
    pairs, is_all = _near_duplicates(rows, num_trained, likely)
    near = pairs[pairs[:, 1] < num_trained]
    leaks = pairs[(pairs[:, 1] >= num_trained) & (pairs[:, 0] < num_trained)]
    evaluated = num_trained + np.flatnonzero(content[num_trained:])
    exact = evaluated[first[evaluated] < num_trained]
    also_near = evaluated[np.isin(first[evaluated], leaks[:, 1])]  # the same as one that is nearly trained on
    others = also_near[~np.isin(also_near, leaks[:, 1])]
    leaks = np.concatenate([leaks, np.stack([first[others], others], axis=1)])
    exact_pairs = np.stack([first[exact], exact], axis=1)
    return Comparison(
        duplicates=list_matches(np.stack([first[duplicates], duplicates], axis=1)),
        similar=list_matches(near, is_least=not is_all),
        prompts=list_matches(_same_prompts(rows.column("prompt")[:num_trained], uniques[uniques < num_trained])),
        leaked=list_matches(np.concatenate([exact_pairs, _same_words(rows, num_trained), leaks]), is_least=not is_all),
    )


def _near_duplicates(rows: RowIndex, num_trained: int, likely: np.ndarray) -> tuple[np.ndarray, bool]:
    """Those of the likely pairs that are nearly the same, and whether all were compared. Leaks weigh most: first."""
    is_leak = (likely[:, 0] < num_trained) & (likely[:, 1] >= num_trained)
    chosen = np.concatenate([likely[is_leak], likely[~is_leak]])[:MOST_PAIRS]
    begins, ends = rows.spans()
    sizes = np.minimum(ends - begins, LONGEST)[chosen].sum(axis=1, dtype=np.int64)
    chosen = chosen[np.cumsum(sizes) <= MOST_TOKENS]
    return chosen[_verify_pairs(rows, chosen)], len(chosen) == len(likely)


def _same_words(rows: RowIndex, num_trained: int) -> np.ndarray:
    """Pairs of a trained row and one to evaluate on that ask and say the same, whatever the system says to it.

    Where a question is trained on with several answers, it is what the system says that tells them apart.
    """
    words, question = rows.column("words"), rows.column("question")
    first, _ = _first_of(words)
    evaluated = num_trained + np.flatnonzero(words[num_trained:])
    evaluated = evaluated[first[evaluated] < num_trained]
    asked, _ = _first_of(question[:num_trained])
    differs = np.zeros(num_trained, dtype=bool)
    differs[asked[words[:num_trained] != words[asked]]] = True
    trained = first[evaluated]
    counts = (question[trained] == 0) | ~differs[asked[trained]]
    return np.stack([trained[counts], evaluated[counts]], axis=1)


def list_matches(pairs: np.ndarray, *, is_least: bool = False) -> Matches:
    """`pairs` (n, 2) of an earlier and a later row, which is counted once."""
    later, places = np.unique(pairs[:, 1], return_index=True)
    examples = [(int(row), int(pairs[place, 0])) for row, place in zip(later[:EXAMPLES], places, strict=False)]
    return Matches(len(later), examples, is_least and len(later) > 0)


def _first_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each entry the number of the first one of its value; and the numbers of those firsts, ascending."""
    _, firsts, which = np.unique(values, return_index=True, return_inverse=True)
    return firsts[which], np.sort(firsts)


def _same_prompts(prompts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Pairs of rows that ask the same; `rows` are those whose whole content is no repetition."""
    asking = rows[prompts[rows] != 0]
    first, _ = _first_of(prompts[asking])
    later = np.flatnonzero(first != np.arange(len(asking)))
    return np.stack([asking[first[later]], asking[later]], axis=1)


class _Runs(NamedTuple):
    """Runs of tokens of several rows: a hash (uint64), the number of its row, whether its first token is trained."""

    hashes: np.ndarray
    owners: np.ndarray
    are_trained: np.ndarray

    def trained(self) -> "_Runs":
        return _Runs(*(array[self.are_trained] for array in self))

    def once(self) -> tuple[np.ndarray, np.ndarray]:
        """Each run of a row once: a key that no run of another row has, and the number of its row."""
        keys, places = np.unique(self.hashes + self.owners.astype(np.uint64) * _MIX, return_index=True)
        return keys, self.owners[places]


def _verify_pairs(rows: RowIndex, pairs: np.ndarray) -> np.ndarray:
    """The mask of the pairs that are nearly the same.

    All their tokens are alike by `LIKE` (runs of three), and so are the trained ones. A prompt may be long, and shared
    by rows that ask different things in its last words: so a short answer counts only if it is an answer to the
    same words, and a long one if the prompts differ in few tokens only, or it is very long. (Where data.loss_on lets
    all be trained on, nobody can tell: there rows with a question count only if their words are the same.)
    """
    mask = np.zeros(len(pairs), dtype=bool)
    begins, ends = rows.spans()
    words, question = rows.column("words"), rows.column("question")
    sizes = np.minimum(ends - begins, LONGEST)[pairs].sum(axis=1)
    portion = np.cumsum(sizes) // _PORTION
    for number in distinct(portion):
        part = np.flatnonzero(portion == number)
        sides = [_Tokens(*rows.tokens_of(pairs[part, side], LONGEST, from_both_ends=True)) for side in (0, 1)]
        are_long = np.maximum(*(side.sizes for side in sides)) > LONG
        first, other = (_runs(side, are_long) for side in sides)
        is_like = _jaccard(first, other, len(part)) >= LIKE
        is_like &= _jaccard(first.trained(), other.trained(), len(part)) >= LIKE
        same = (words[pairs[part]][:, 0] == words[pairs[part]][:, 1]) | (question[pairs[part]] == 0).all(axis=1)
        num_trained = np.minimum(*(side.num_trained() for side in sides))
        has_prompt = np.logical_and(*(side.sizes - side.num_trained() > 1 for side in sides))
        same |= has_prompt & (num_trained >= MANY_TRAINED)
        for place in np.flatnonzero(is_like & ~same & has_prompt & (num_trained >= LEAST_TRAINED)):
            same[place] = _are_similar_prompts(*(side.prompt(int(place)) for side in sides))
        mask[part] = is_like & same
    return mask


class _Tokens(NamedTuple):
    """Tokens (int64) of several rows after one another, whether each is trained on, and how many each row has."""

    ids: np.ndarray
    are_trained: np.ndarray
    sizes: np.ndarray

    def num_trained(self) -> np.ndarray:
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.bincount(owners[self.are_trained], minlength=len(self.sizes))

    def prompt(self, row: int) -> np.ndarray:
        """The tokens of a row that are not trained on."""
        start = int(self.sizes[:row].sum())
        its = slice(start, start + int(self.sizes[row]))
        return np.asarray(self.ids[its][~self.are_trained[its]])


def _are_similar_prompts(first: np.ndarray, other: np.ndarray) -> bool:
    """Whether prompts are nearly the same between what both begin and what both end with.

    That is a few tokens, or a piece that only one of them has, or it is alike by a half.
    """
    same = first[: len(other)] == other[: len(first)]
    begin = len(same) if same.all() else int(same.argmin())
    first, other = first[begin:], other[begin:]
    least = min(len(first), len(other))
    same = first[len(first) - least :][::-1] == other[len(other) - least :][::-1]
    end = least if same.all() else int(same.argmin())
    first, other = first[: len(first) - end], other[: len(other) - end]
    if max(len(first), len(other)) <= FEW or not len(first) or not len(other):
        return True
    runs = [{tuple(side[place : place + 3].tolist()) for place in range(len(side))} for side in (first, other)]
    return 2 * len(runs[0] & runs[1]) >= len(runs[0] | runs[1])


def _runs(side: _Tokens, are_long: np.ndarray) -> _Runs:
    """All runs of three tokens of these rows; the last two of a row stand with nothing after them.

    Of those that `are_long`, runs of nine. (The last six of them reach into the next row: they count as others.)
    """
    num_rows = len(side.sizes)
    owners = np.repeat(np.arange(num_rows), side.sizes)
    places = np.arange(len(side.ids)) + 2 * owners
    ids = np.zeros(len(side.ids) + 2 * num_rows + 2, dtype=np.uint64)
    ids[places] = side.ids.astype(np.uint64) + np.uint64(1)
    hashes = ids * _MIX
    hashes[:-1] ^= (ids[1:] * _MORE) << np.uint64(7)
    hashes[:-2] += (ids[2:] * _MIX) >> np.uint64(9)
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _MORE
    hashes = hashes[places]
    longer = hashes.copy()
    longer[:-3] += hashes[3:] * _MORE
    longer[:-6] ^= hashes[6:] * _MIX
    return _Runs(np.where(are_long[owners], longer, hashes), owners, side.are_trained)


def _jaccard(first: _Runs, other: _Runs, number: int) -> np.ndarray:
    """Of each pair: runs that both have / runs that either has; 0 where neither has any: nothing is alike there."""
    (keys, of), (other_keys, of_other) = first.once(), other.once()
    _, shared, _ = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    both = np.bincount(of[shared], minlength=number)
    either = np.bincount(of, minlength=number) + np.bincount(of_other, minlength=number) - both
    return np.asarray(both / np.maximum(1, either))
