"""The loss of each row of a step, from what the loss of its micro-batches is made of."""

from collections.abc import Mapping

import numpy as np

from .ledger_file import NO_ROWS, ROW, sort_rows

OF_TARGETS = frozenset({"targets", "chosen_targets"})
"""Amounts of which a loss is one number a target; of all others it is one number an example."""


def make_rows(
    per: str,
    losses_of: Mapping[str, np.ndarray],
    sequences: np.ndarray,
    num_targets: np.ndarray,
    amounts: Mapping[str, int],
) -> np.ndarray:
    """The rows (`ROW`) of one rank's micro-batches, by number; none where the stage cannot tell its losses apart.

    `losses_of` are those of `Loss.each`, all micro-batches joined; the rest is what `StepBatches` has.
    Where a loss is a mean over target tokens (`per` is "targets"), a row counts its tokens; else it counts 1. The
    losses of the rows of a step, divided by the sum of their counts, add up to its loss, whatever parts that has, but
    for smoothed labels and the balance of experts.
    """
    if not losses_of:
        return NO_ROWS
    rows = np.zeros(len(sequences), ROW)
    rows["number"] = sequences
    rows["count"] = num_targets if per == "targets" else 1
    losses = np.zeros(len(rows))
    for name, of_each in losses_of.items():
        values = of_each.astype(np.float64)
        if name in OF_TARGETS:
            values = _sum_by_row(values, num_targets)
        losses += values * (amounts[per] / max(1, amounts[name]))
    with np.errstate(over="ignore"):  # a loss of 1e39 is an infinite one in float32
        rows["loss"] = losses
    return sort_rows([rows])


def _sum_by_row(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sums of neighbouring values, `sizes` of them each; no size is 0."""
    return np.asarray(np.add.reduceat(values, np.cumsum(sizes) - sizes))
