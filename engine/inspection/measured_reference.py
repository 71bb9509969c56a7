"""What the reference says of answers, where a run has measured it: see engine/training/initial_model.py."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ftui.dataset.report_text import percent
from ftui.errors import FtuiError
from ftui.profile.schema import Profile
from ftui.profile.sections.preference import REFERENCE_STAGES

from ..data.load_rows import DataSplit, LoadedData, LogProbs
from ..data.stores.sequences import Sequences
from ..models.adapter_files import starting_adapter


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


def find_log_probs(profile: Profile, read: LoadedData, cache: Path, report: Callable[[str], None]) -> np.ndarray | None:
    """As `sum_log_probs`, of all rows to train on, as far as a run from the same rows and weights has measured them.

    `None` where none has, and in stages that compare with no reference.
    """
    measured = [*read.stores[0].folder.glob("reference-*.safetensors")] if profile.run.stage in REFERENCE_STAGES else []
    if not measured:
        return None
    from ..build import fingerprint_inputs  # these build models: only rows that a run has measured need them
    from ..training.initial_model import reference_key
    from ..training.measured_values import read_arithmetic, read_values

    try:
        start = replace(read, adapter=starting_adapter(profile.adapter, report))
        fingerprints = fingerprint_inputs(start, cache, lambda: None)
    except (FtuiError, OSError):  # the check of the profile says what is wrong; from such files nothing was measured
        return None
    for path in measured:
        key = reference_key(profile, start, read_arithmetic(path), fingerprints)
        if (values := read_values(path, key)) is not None:
            return _join_splits(read, values)
    return None


def _join_splits(read: LoadedData, values: dict[str, np.ndarray]) -> np.ndarray:
    sequences, sums = read.train.sequences, np.full(len(read.train.sequences), np.nan)
    for name, split in (("train", read.train), ("evaluation", read.evaluation)):
        if split is not None and split.sequences is sequences and name in values:
            ends = np.cumsum(sequences.num_targets[split.indices], dtype=np.int64)
            its = sum_log_probs(sequences, split.indices, LogProbs(values[name], np.concatenate([[0], ends])))
            sums[split.indices] = its[split.indices]
    return sums
