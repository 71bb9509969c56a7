"""How long the sequences are, and what a limit takes from them."""

from collections.abc import Iterable, Sequence

import numpy as np

from ftui.dataset.report import OtherLength

from ...data.stores.store import Store
from ...system.distinct import distinct

PERCENTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
NUM_BARS = 20
USUAL, FAR, USUAL_BARS = 99, 2, 18  # percentile; times it, from which on a length is far beyond; bars up to it
SHORTEST = 512  # of the other lengths that are tried


def percentiles(values: np.ndarray) -> list[tuple[float, float]]:
    """[percentile, value]; values between two are those of the one below. Without values there are none."""
    if not len(values):
        return []
    bounds = np.percentile(values, PERCENTILES, method="lower")
    return [(float(at), float(value)) for at, value in zip(PERCENTILES, bounds, strict=True)]


def histogram(lengths: np.ndarray) -> list[tuple[int, int]]:
    """At most 20 bars of equal width: [longest length of the bar, number]. The last bar ends at the longest.

    Where that one is far beyond the others, the last bar is wider and holds what is: else nearly all rows stood in one.
    """
    if not len(lengths):
        return []
    longest, usual = int(lengths.max()), int(np.percentile(lengths, USUAL, method="lower"))
    is_far = longest > FAR * max(usual, 1)
    width = -(-(usual if is_far else longest) // (USUAL_BARS if is_far else NUM_BARS)) or 1
    bars = (np.maximum(lengths, 1) - 1) // width
    if is_far:
        bars = np.minimum(bars, -(-usual // width))
    numbers = np.bincount(bars)
    ends = [(bar + 1) * width for bar in range(len(numbers) - 1)]
    return [(end, int(number)) for end, number in zip([*ends, longest], numbers, strict=True)]


def lengths_to_try(max_length: int, longest: int, positions: int | None) -> list[int]:
    """Powers of two from 512 to the longest there is (or what the model sees), that length, and the one that is set."""
    most = min(longest, positions) if positions else longest
    tried = {max_length, max(most, 1)}
    length = SHORTEST
    while length < most:
        tried.add(length)
        length *= 2
    return sorted(tried)


def cut_losses(stores: Sequence[Store], limits: Iterable[int]) -> list[OtherLength]:
    """What is cut off at each of these lengths: rows, their tokens beyond it, and those of them that are trained on."""
    losses = []
    for max_length in limits:
        num_cut = num_tokens = num_target_tokens = 0
        for store in stores:
            longer, begins, ends = _beyond(store, max_length)
            num_cut += len(distinct(store.rows[longer]))
            num_tokens += int((ends - begins).sum())
            num_target_tokens += int(store.count_trained(begins, ends).sum(dtype=np.int64))
        losses.append(OtherLength(max_length, num_cut, num_tokens, num_target_tokens))
    return losses


def cut_answers(store: Store, max_length: int) -> np.ndarray:
    """The rows (numbers, ascending) of which a trained token stands beyond the limit."""
    longer, begins, ends = _beyond(store, max_length)
    return distinct(store.rows[longer[store.count_trained(begins, ends) > 0]])


def _beyond(store: Store, max_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sequences that are longer (their numbers), and where what is beyond the limit begins and ends."""
    longer = np.flatnonzero(store.lengths > max_length)
    starts = store.starts[longer]
    return longer, starts + max_length, starts + store.lengths[longer]
