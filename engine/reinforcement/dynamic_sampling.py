"""Dynamic sampling (DAPO, Yu et al. 2025): groups whose answers all have the same reward teach nothing. They are left
out, and further prompts are answered in their place.

Further prompts are the next ones of the epochs' order, as many as are missing by the share of groups that were of use
so far. After `max_resample_times` what is still missing is filled with groups that were left out: a step always has its
number of answers, and a run its number of steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..rollouts.rollout import Rollout
from .advantages import has_spread
from .rollout_metrics import measure_answers

LEFT_OUT = "num_groups_left_out"


def sample_groups(answer: Callable[[int], Rollout], size: int, max_resample_times: int) -> Rollout:
    """A rollout of `size` groups; `answer(number)` gives so many further ones, scored.

    Its figures are those of all that were sampled: of the groups that are trained on alone, about half of the answers
    would be right whatever the model has learned.
    """
    sampled = answer(size)
    is_useful = _useful(sampled)
    for _ in range(max_resample_times):
        if is_useful.sum() >= size:
            break
        sampled = sampled.join(answer(count_needed(is_useful, size)))
        is_useful = _useful(sampled)
    chosen = choose_groups(is_useful, size)
    num_left_out = len(is_useful) - len(chosen)
    figures = measure_answers(sampled, range(len(sampled))) | {LEFT_OUT: float(num_left_out)}
    return replace(sampled.take(chosen), figures=figures, num_left_out=num_left_out)


def count_needed(is_useful: np.ndarray, size: int) -> int:
    """How many further groups to sample after those of `is_useful` (bool), of which fewer than `size` are; at most
    `size`, which a first one had."""
    num_useful = int(is_useful.sum())
    if not num_useful:
        return size
    return min(size, math.ceil((size - num_useful) * len(is_useful) / num_useful))


def choose_groups(is_useful: np.ndarray, size: int) -> Sequence[int]:
    """The first `size` groups that are of use, filled with the first others, in the order in which they were drawn."""
    useful, others = np.flatnonzero(is_useful), np.flatnonzero(~is_useful)
    chosen: list[int] = np.sort(np.concatenate([useful, others])[:size]).tolist()
    return chosen


def _useful(sampled: Rollout) -> np.ndarray:
    assert sampled.rewards is not None, "it is scored"
    return has_spread(sampled.rewards.totals.reshape(-1, sampled.group_size))
