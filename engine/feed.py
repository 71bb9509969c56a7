"""The micro-batches of each step, made in a thread during the step before."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from ftui.engine.collate import collate
from ftui.engine.heads import Batch
from ftui.engine.preparation import Prepared

_Key = tuple[int, int]


class Feed:
    """Cuts the rows of a step into micro-batches of `size` rows. Closed at the end of a `with` block."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self._coming: tuple[_Key, Future[list[Batch]]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def take(self, step: int, size: int) -> tuple[list[Batch], float]:
        """The micro-batches of a step, and the seconds waited for them."""
        begun = time.perf_counter()
        if self._coming is None or self._coming[0] != (step, size):
            self.expect(step, size)
        assert self._coming is not None
        batches = self._coming[1].result()
        self._coming = None
        return batches, time.perf_counter() - begun

    def expect(self, step: int, size: int) -> None:
        """Begin to make the micro-batches of a step."""
        if self._coming is not None:
            self._coming[1].cancel()
        self._coming = (step, size), self._thread.submit(self._micro_batches, step, size)

    def _micro_batches(self, step: int, size: int) -> list[Batch]:
        prepared = self._prepared
        rows, train = prepared.plan.step(step), prepared.train
        pad = int(prepared.tokenizer.pad_token_id or 0)
        cut = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [collate([[train.sequences[int(train.indices[i])] for i in row] for row in part], pad) for part in cut]
