"""The micro-batches of each step, made in a thread during the step before."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..distributed.process_group import Ranks
from ..objectives.loss import Batch
from ..planning.plan import Row
from .collate import collate
from .prepare import Prepared


@dataclass(frozen=True)
class Portion:
    """This rank's micro-batches of a step; the numbers of tokens are those of the whole step, all ranks together."""

    batches: list[Batch]
    num_tokens: int
    num_target_tokens: int


class Feed:
    """Cuts the rows of a step into micro-batches of `size` rows, and deals these to the ranks in turn.

    `rows_of` says which rows a step has, by default those of the plan. Closed at the end of a `with` block.
    """

    def __init__(self, prepared: Prepared, ranks: Ranks, rows_of: Callable[[int], list[Row]] | None = None) -> None:
        self._prepared = prepared
        self._ranks = ranks
        self._rows_of = rows_of or prepared.plan.step
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self._coming: tuple[tuple[int, int], Future[Portion]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def take(self, step: int, size: int) -> tuple[Portion, float]:
        """The micro-batches of a step, and the seconds waited for them."""
        begun = time.perf_counter()
        if self._coming is None or self._coming[0] != (step, size):
            self.expect(step, size)
        assert self._coming is not None
        portion = self._coming[1].result()
        self._coming = None
        return portion, time.perf_counter() - begun

    def expect(self, step: int, size: int) -> None:
        """Begin to make the micro-batches of a step."""
        if self._coming is not None:
            self._coming[1].cancel()
        self._coming = (step, size), self._thread.submit(self._portion, step, size)

    def _portion(self, step: int, size: int) -> Portion:
        prepared = self._prepared
        rows, train = self._rows_of(step), prepared.train
        pad = int(prepared.tokenizer.pad_token_id or 0)
        cut = [rows[start : start + size] for start in range(0, len(rows), size)]
        mine = cut[self._ranks.rank :: self._ranks.size]
        chosen = train.indices[[i for row in rows for i in row]]
        return Portion(
            [collate([[train.sequences[int(train.indices[i])] for i in row] for row in part], pad) for part in mine],
            int(train.sequences.lengths[chosen].sum()),
            int(train.sequences.num_targets[chosen].sum()),
        )
