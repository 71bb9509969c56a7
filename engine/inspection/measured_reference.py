"""What the reference says of answers, where a run has measured it: see engine/training/initial_model.py."""

from dataclasses import dataclass

import numpy as np

from ftui.dataset.report_text import percent

from ..data.load_rows import DataSplit, LogProbs
from ..data.stores.sequences import Sequences


@dataclass(frozen=True)
class Preferences:
    """Pairs that are measured, and the mask of those of which the rejected answer is likelier under the reference:
    the whole answer, and a token of it on average.
    """

    is_measured: np.ndarray
    are_rejected: np.ndarray
    are_rejected_per_token: np.ndarray

    def describe(self) -> str:
        """The number and the share, in words."""
        total, number, per_token = (
            int(mask.sum()) for mask in (self.is_measured, self.are_rejected, self.are_rejected_per_token)
        )
        return (
            f"before training the rejected answer is the likelier one in {number:,} of {total:,} pairs "
            f"({percent(number, total)}), per token in {per_token:,} ({percent(per_token, total)})"
        )


def sum_log_probs(sequences: Sequences, indices: np.ndarray, reference: LogProbs) -> np.ndarray:
    """(len(sequences),) float64: the log-probability of all targets of a sequence together.

    `reference` are those of the sequences `indices`; NaN where a sequence is none of them, or is not measured.
    """
    sums = np.full(len(sequences), np.nan)
    if len(indices):
        sums[indices] = np.add.reduceat(reference.values, reference.starts[:-1], dtype=np.float64)
    return sums


def compare_sides(sums: np.ndarray, num_targets: np.ndarray) -> Preferences:
    """Of pairs: sequences 2n and 2n + 1 are the chosen and the rejected answer of pair n."""
    sides, means = sums.reshape(-1, 2), (sums / np.maximum(1, num_targets)).reshape(-1, 2)
    return Preferences(~np.isnan(sides).any(axis=1), sides[:, 0] < sides[:, 1], means[:, 0] < means[:, 1])


def describe_reference(split: DataSplit) -> str:
    """How many of its pairs the reference orders the other way round, in words; "" where none are compared with one."""
    if split.reference is None or split.per_example != 2:
        return ""
    targets = split.sequences.num_targets
    sums = sum_log_probs(split.sequences, split.indices, split.reference)
    return compare_sides(sums, targets).describe()
