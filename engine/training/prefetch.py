"""The micro-batches of each step, made in a thread during the step before."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from torch.profiler import record_function

from ..distributed.process_group import ProcessGroup
from ..objectives.loss import Batch, RowLayout
from ..planning.plan import Row
from ..profile_step.marks import DATA
from .collate import collate_examples
from .prepare import TrainingData


@dataclass(frozen=True)
class StepBatches:
    """This rank's micro-batches of a step; `amounts` are those of the whole step, all ranks together.

    `num_missing`: by how many the rank with the most has more than this one. `sequences` (int64) are the first ones of
    the examples of its micro-batches, in their order, and `num_targets` (int64) the trained tokens of each example.
    `facts`: what is known of the step before it is taken, for its record.
    """

    batches: list[Batch]
    amounts: dict[str, int]
    num_missing: int
    sequences: np.ndarray
    num_targets: np.ndarray
    mismatched: list[Batch] | None = None
    facts: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def num_places(self) -> int:
        """Places of this rank's micro-batches, padding counted: what it has to compute."""
        return sum(batch.input_ids.numel() for batch in self.batches)

    @property
    def num_tokens(self) -> int:
        """Real tokens, padding not counted."""
        return self.amounts["tokens"]

    @property
    def num_target_tokens(self) -> int:
        """Trained tokens."""
        return self.amounts["targets"]


class StepSource(Protocol):
    """Where the micro-batches of steps come from."""

    def get(self, step: int, size: int) -> tuple[StepBatches, float]:
        """The micro-batches of a step, of at most `size` examples, and the seconds waited for them."""
        ...

    def start(self, step: int, size: int) -> None:
        """Begin to make those of a step."""
        ...


class Prefetcher:
    """Cuts the rows of a step into micro-batches of `size` rows, and deals these to the ranks in turn.

    `rows_of` says which rows a step has, by default those of the plan; `layout` is for `collate`. Closed at the end of
    a `with` block.
    """

    def __init__(
        self,
        data: TrainingData,
        ranks: ProcessGroup,
        rows_of: Callable[[int], list[Row]] | None = None,
        *,
        layout: RowLayout = RowLayout.PADDED,
    ) -> None:
        self._data = data
        self._ranks = ranks
        self._layout = layout
        self._rows_of = rows_of or data.plan.step
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
        self._next: tuple[tuple[int, int], Future[StepBatches]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def get(self, step: int, size: int) -> tuple[StepBatches, float]:
        """The micro-batches of a step, and the seconds waited for them."""
        start = time.perf_counter()
        if self._next is None or self._next[0] != (step, size):
            self.start(step, size)
        assert self._next is not None
        with record_function(DATA):
            batches = self._next[1].result()
        self._next = None
        return batches, time.perf_counter() - start

    def start(self, step: int, size: int) -> None:
        """Begin to make the micro-batches of a step."""
        if self._next is not None:
            self._next[1].cancel()
        self._next = (step, size), self._thread.submit(self._make, step, size)

    def _make(self, step: int, size: int) -> StepBatches:
        rows, train = self._rows_of(step), self._data.train
        micro_batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        amounts = train.amounts(np.array([number for row in rows for number in row]))
        own = micro_batches[self._ranks.rank :: self._ranks.size]
        batches, mismatched = (
            None if split is None else [collate_examples(split, rows, self._data.pad_id, self._layout) for rows in own]
            for split in (train, train.mismatched)
        )
        assert batches is not None, "there are rows to train on"
        num_missing = -(-len(micro_batches) // self._ranks.size) - len(own)
        examples = np.array([number for batch in own for row in batch for number in row], dtype=np.int64)
        sequences = train.indices.reshape(-1, train.per_example)[examples]
        num_targets = train.sequences.num_targets[sequences].sum(1, dtype=np.int64)
        return StepBatches(batches, amounts, num_missing, sequences[:, 0], num_targets, mismatched)
