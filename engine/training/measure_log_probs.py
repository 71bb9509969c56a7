"""Log-probabilities of rows under the model as it is, measured by all ranks together.

All ranks walk through the same batches, and each computes those that are its turn: a batch has the same rows whatever
the number of ranks is, so that their values are those of one process to the last bit.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch

from ftui.errors import FtuiError, ModelError
from ftui.profile.schema import Profile
from ftui.units import duration

from ..data.load_rows import DataSplit
from ..distributed.process_group import ProcessGroup
from ..distributed.sharded_base import fill_up, together
from ..models.model_parts import ModelParts
from ..models.performance import uncompiled
from ..objectives.log_probs import target_log_probs
from ..planning.plan import Row
from ..system.memory import no_memory, release_cached_memory, within_memory
from ..system.pace import Pace
from .collate import collate_examples

ROUND = 8  # batches of each rank before all wait for each other: a pause and an error reach every rank with it
KEEP_SECONDS = 120.0  # how often a rank writes down what it has measured: a kill loses no more


@dataclass(frozen=True)
class BatchLogProbs:
    """Computes the log-probabilities of all targets of a batch."""

    profile: Profile
    parts: ModelParts
    pad_id: int

    def __call__(self, split: DataSplit, rows: Sequence[Row]) -> np.ndarray | None:
        """(targets,) float32, in their order; `None` when memory ran out.

        Raises:
            RuntimeError: it ran out over a sharded base.
            ModelError: one is NaN or infinite.
        """

        def measure() -> np.ndarray:
            batch = collate_examples(split, rows, self.pad_id, self.parts.layout).to(self.parts.device)
            with torch.no_grad(), uncompiled(self.profile.train), self.parts.autocast():
                return np.asarray(target_log_probs(self.parts.model, batch).values.float().cpu())

        values, _ = within_memory(measure, can_retry=self.parts.base is None)
        if values is None:
            release_cached_memory(self.parts.device)
        elif not np.isfinite(values).all():
            raise ModelError(
                "The model's log-probabilities before the first step are NaN or infinite.",
                hint='Set train.precision = "fp32", or check the weights that the run starts from.',
            )
        return values


@dataclass(frozen=True)
class Claim:
    """A batch, and which of its examples (one entry each, in its order) no batch before it has."""

    rows: Sequence[Row]
    is_new: np.ndarray

    @property
    def examples(self) -> np.ndarray:
        """The numbers of the batch's examples."""
        return np.array([number for row in self.rows for number in row])


@dataclass(eq=False)
class Measurement:
    """What is measured of a split: the log-probability of each target (in nats), or the mean loss of each example.

    `values` (float32): those of example n are values[starts[n] : starts[n + 1]]; NaN where none is measured, as of an
    example that is in none of the `batches`. `is_own`: whether this rank has measured an example.
    """

    split: DataSplit
    batches: Callable[[], Iterator[Sequence[Row]]]
    as_losses: bool = False

    def __post_init__(self) -> None:
        self._lengths, self._num_targets = self.split.lengths, self.split.num_targets
        sizes = np.ones(len(self.split), dtype=np.int32) if self.as_losses else self._num_targets
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.values = np.full(int(self.starts[-1]), np.nan, np.float32)
        self.is_own = np.zeros(len(self.split), dtype=bool)

    def claims(self) -> Iterator[Claim]:
        """The batches that have an example to be measured, in their order: the same on each rank."""
        is_left = np.isnan(self.values[self.starts[:-1]])
        num_left = int(is_left.sum())
        for rows in self.batches() if num_left else ():
            examples = [number for row in rows for number in row]
            is_new = is_left[examples]
            if is_new.any():
                yield Claim(rows, is_new)
                num_left -= len({number for number in examples if is_left[number]})
                is_left[examples] = False
                if not num_left:
                    return

    def num_tokens(self, claim: Claim) -> int:
        """Tokens of what is measured of a batch."""
        return int(self._lengths[np.unique(claim.examples[claim.is_new])].sum())

    def add(self, claim: Claim, log_probs: BatchLogProbs) -> None:
        """Measure a batch; in halves where memory runs out.

        Raises:
            GpuMemoryError, HostMemoryError: not even one row fits.
        """
        rows, examples, middle = claim.rows, claim.examples, (len(claim.rows) + 1) // 2
        values = log_probs(self.split, rows)
        if values is None and middle == len(rows):
            tokens = int(self._lengths[examples].sum())
            raise no_memory(log_probs.parts.device, f"a row of {tokens} tokens", "Shorten data.max_length.")
        if values is None:
            cut = sum(len(row) for row in rows[:middle])
            self.add(Claim(rows[:middle], claim.is_new[:cut]), log_probs)
            self.add(Claim(rows[middle:], claim.is_new[cut:]), log_probs)
            return
        ends = np.cumsum(self._num_targets[examples], dtype=np.int64)
        for number, is_new, one in zip(examples, claim.is_new, np.split(values, ends[:-1]), strict=True):
            if is_new:
                mean = -one.astype(np.float64).sum() / len(one) if self.as_losses else one
                self.values[self.starts[number] : self.starts[number + 1]] = mean
                self.is_own[number] = True

    def own_part(self) -> tuple[np.ndarray, np.ndarray]:
        """What this rank has measured, example after example, and of which examples it is."""
        return self.values[np.repeat(self.is_own, np.diff(self.starts))], self.is_own

    def add_part(self, values: np.ndarray, is_theirs: np.ndarray) -> None:
        """Take in the `own_part` of a rank."""
        self.values[np.repeat(is_theirs, np.diff(self.starts))] = values


def measure(
    measurements: Sequence[Measurement],
    log_probs: BatchLogProbs,
    ranks: ProcessGroup,
    report: Callable[[str], None],
    keep: Callable[[], None],
) -> bool:
    """Measure what is not measured yet; whether there was any. Each rank has its own values then.

    `report` gets in words how far it is; `keep` is called now and then, to write down what this rank has.

    Raises:
        Shutdown: between two batches, from `report`.
        GpuMemoryError, HostMemoryError, ModelError, DiskError: on every rank where one of them has it.
    """
    num_tokens = sum(one.num_tokens(claim) for one in measurements for claim in one.claims())
    claims = ((one, claim) for one in measurements for claim in one.claims())
    meter, kept = Meter(num_tokens, report), time.monotonic()

    def run_round(batches: Sequence[tuple[Measurement, Claim]]) -> None:
        """A rank that fails takes part in the others' passes to the end of the round."""
        nonlocal kept
        error: FtuiError | None = None
        for first in range(0, len(batches), ranks.size):
            turn = batches[first : first + ranks.size]
            try:
                if error is None and ranks.rank < len(turn):
                    one, claim = turn[ranks.rank]
                    one.add(claim, log_probs)
                else:
                    fill_up(log_probs.parts, 1, backward=False)
            except FtuiError as own:
                error = own
            for one, claim in turn:
                meter.add(one.num_tokens(claim))
        if error is not None:
            raise error
        if time.monotonic() - kept >= KEEP_SECONDS:
            keep()
            kept = time.monotonic()

    while batches := list(islice(claims, ROUND * ranks.size)):
        with together(log_probs.parts):
            ranks.act_together(partial(run_round, batches))
    return num_tokens > 0


@dataclass(eq=False)
class Meter:
    """Tells how far a measurement is, and how long it will take."""

    num_tokens: int
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self._done, self._pace = 0, Pace()

    def add(self, num_tokens: int) -> None:
        """So many more of all tokens are done."""
        self._done += num_tokens
        share = self._done / self.num_tokens
        self._pace.reach(share)
        self.report(f"{100 * share:.0f} % · {duration(self._pace.seconds_left())} left")
