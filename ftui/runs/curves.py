"""What every quantity of a run did, in a size that does not grow: attaching to a long run reads this, not its history.

Each attempt and quantity has one series of at most `BUCKETS` buckets, each with the lowest, highest and mean value of
its steps. History is one line: when an attempt begins from step s, what earlier ones did above s is gone. A bucket
that reaches over s cannot be unmixed, so the curves are then made again from metrics.jsonl; the same is done when
curves.json is missing, damaged or does not fit. However they came about, the curves are those of the whole file.
"""

import math
from collections.abc import Callable, Iterator

import msgspec

from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.system.files import DAMAGED, read_json, replace_file
from ftui.system.segments import total_bytes

FORM = 1
BUCKETS = 512  # an even number
PIECE = 1 << 20  # bytes read at a time
QUANTITIES = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "memory")


class Series(msgspec.Struct):
    """One quantity. Bucket i holds `width` steps (the last one maybe fewer) from `first[i]` to `last[i]`.

    `low` and `high` are `None` where none of its `count[i]` values was a number; `missing[i]` steps had none.
    """

    width: int = 1
    first: list[int] = []
    last: list[int] = []
    low: list[float | None] = []
    high: list[float | None] = []
    total: list[float] = []
    count: list[int] = []
    missing: list[int] = []

    def add(self, step: int, value: float | None) -> None:
        """Add the value of the next step; NaN and infinite ones count as missing. Steps must ascend."""
        if value is not None and not math.isfinite(value):
            value = None
        if not self.first or self.count[-1] + self.missing[-1] == self.width:
            if len(self.first) == BUCKETS:
                self._halve()
            self._append(step, value)
            return
        self.last[-1] = step
        if value is None:
            self.missing[-1] += 1
            return
        self.low[-1] = _lower(self.low[-1], value)
        self.high[-1] = _higher(self.high[-1], value)
        self.total[-1] += value
        self.count[-1] += 1

    def _append(self, step: int, value: float | None) -> None:
        self.first.append(step)
        self.last.append(step)
        self.low.append(value)
        self.high.append(value)
        self.total.append(0.0 if value is None else value)
        self.count.append(0 if value is None else 1)
        self.missing.append(1 if value is None else 0)

    def _halve(self) -> None:
        """Merge each two neighbours: all are full, so every bucket is full again, and twice as wide."""
        self.width *= 2
        self.first, self.last = self.first[::2], self.last[1::2]
        self.low = [_lower(a, b) for a, b in zip(self.low[::2], self.low[1::2], strict=True)]
        self.high = [_higher(a, b) for a, b in zip(self.high[::2], self.high[1::2], strict=True)]
        self.total = [a + b for a, b in zip(self.total[::2], self.total[1::2], strict=True)]
        self.count = [a + b for a, b in zip(self.count[::2], self.count[1::2], strict=True)]
        self.missing = [a + b for a, b in zip(self.missing[::2], self.missing[1::2], strict=True)]

    def means(self) -> list[float | None]:
        """The mean of each bucket's values."""
        return [total / count if count else None for total, count in zip(self.total, self.count, strict=True)]

    def cut(self, above: int) -> bool:
        """Drop what came after step `above`; False where buckets are too wide to tell."""
        num_kept = sum(first <= above for first in self.first)
        if num_kept == len(self.first) and (not num_kept or self.last[-1] <= above):
            return True
        if num_kept and self.width > 1:
            return False
        for column in (self.first, self.last, self.low, self.high, self.total, self.count, self.missing):
            del column[num_kept:]
        return True


class AttemptCurves(msgspec.Struct):
    """The steps one attempt took after `start_step`, as far as they still count."""

    attempt: int
    token: str
    start_step: int
    last_step: int
    series: dict[str, Series] = {}


class Curves(msgspec.Struct):
    """The contents of curves.json: the curves of the first `offset` bytes of metrics.jsonl."""

    v: int = FORM
    offset: int = 0
    attempts: list[AttemptCurves] = []


def values_of(record: Step) -> Iterator[tuple[str, float | None]]:
    """The quantities of a step; `None` where it was not measured or not finite."""
    yield "loss", record.loss
    yield "learning_rate", record.learning_rate
    yield "grad_norm", record.grad_norm
    yield "tokens_per_second", record.tokens_per_second
    yield "memory", record.memory
    for name, value in record.extras.items():
        if name not in QUANTITIES:
            yield name, value


class CurveReader:
    """Keeps `curves` up with metrics.jsonl, a piece at a time; they are whole whenever `advance` has nothing to do."""

    def __init__(
        self,
        run: Run,
        *,
        afresh: bool = False,
        values: Callable[[Step], Iterator[tuple[str, float | None]]] = values_of,
    ) -> None:
        """`afresh` reads the whole file, as must be done where `values` are others than those of curves.json."""
        self._run = run
        self._values = values
        self.curves = Curves() if afresh else read_stored_curves(run)
        self.has_changed = False
        self._tail = Tail(run.metrics, self.curves.offset)
        self._starts = {attempt.attempt: attempt.start_step for attempt in self.curves.attempts}
        self._must_rebuild = False

    def begin(self, attempt: int, start: int) -> None:
        """An attempt begins after step `start` (the journal may say so before its first step)."""
        if attempt not in self._starts:
            self._starts[attempt] = start
            self._cut_before(attempt, start)

    def advance(self) -> bool:
        """Take in one more piece of the file; False when there is none, and where the disk does not give it back now.

        `Watch` reads the same file, and says so.
        """
        before = self._tail.offset
        try:
            records = self._tail.read(PIECE)
        except OSError:
            return False
        if self._tail.offset == before:
            if not self._must_rebuild:
                return False
            self._must_rebuild = False  # by now the starts of all attempts are known
            self.curves, self._tail, self.has_changed = Curves(), Tail(self._run.metrics), True
            return True
        for record in records:
            if isinstance(record, Step):
                self._add(record)
        self.curves.offset = self._tail.offset
        self.has_changed = True
        return True

    def _add(self, record: Step) -> None:
        if record.attempt not in self._starts:
            self.begin(record.attempt, record.step - 1)
        if self._must_rebuild or record.step > self._limit(record.attempt):
            return
        attempts = self.curves.attempts
        if not attempts or record.attempt > attempts[-1].attempt:
            attempts.append(AttemptCurves(record.attempt, record.token, record.step - 1, record.step - 1))
        newest = attempts[-1]
        if (record.attempt, record.token) != (newest.attempt, newest.token) or record.step <= newest.last_step:
            return  # of a writer that another one has replaced
        newest.last_step = record.step
        for name, value in self._values(record):
            series = newest.series.get(name)
            if series is None:
                series = newest.series[name] = Series()
            series.add(record.step, value)

    def _limit(self, attempt: int) -> float:
        """The last step of an attempt that counts: later attempts have begun at or after it."""
        limit = math.inf
        for later, start in self._starts.items():
            if later > attempt and start < limit:
                limit = start
        return limit

    def _cut_before(self, attempt: int, start: int) -> None:
        """Drop what attempts before this one did above `start`, or note that it takes the file to know that."""
        remaining = []
        for earlier in self.curves.attempts:
            if earlier.attempt < attempt and earlier.last_step > start:
                self.has_changed = True
                if earlier.start_step >= start:
                    continue
                if not all([series.cut(start) for series in earlier.series.values()]):
                    self._must_rebuild = True
                earlier.series = {name: series for name, series in earlier.series.items() if series.first}
                earlier.last_step = max((series.last[-1] for series in earlier.series.values()), default=start)
            remaining.append(earlier)
        self.curves.attempts = remaining


def write_curves(run: Run, reader: CurveReader) -> None:
    """Put curves.json in place.

    Raises:
        OSError: the disk did not take it.
    """
    replace_file(run.curves, msgspec.json.encode(reader.curves))
    reader.has_changed = False


def read_stored_curves(run: Run) -> Curves:
    """curves.json, or empty curves where it is missing, damaged, of another form, or reaches beyond metrics.jsonl."""
    try:
        curves = read_json(run.curves, Curves)
        size = total_bytes(run.metrics) if curves.offset else 0
    except (OSError, *DAMAGED):
        return Curves()
    return curves if curves.v == FORM and curves.offset <= size else Curves()


class MeanLosses(msgspec.Struct):
    """The steps of each bucket of a `Series`, the sum of its values and their number."""

    first: list[int] = []
    last: list[int] = []
    total: list[float] = []
    count: list[int] = []


class _OnlyLoss(msgspec.Struct):
    loss: MeanLosses | None = None


class _LossOfAttempt(msgspec.Struct):
    series: _OnlyLoss = msgspec.field(default_factory=_OnlyLoss)


class _Losses(msgspec.Struct):
    """curves.json with all but the loss left out: a tenth of the time and memory."""

    attempts: list[_LossOfAttempt]
    v: int = 0


def read_loss(run: Run) -> list[MeanLosses]:
    """The loss of each attempt as curves.json has it, maybe some seconds old: enough for a picture of a thumb's size.

    Nothing where it is missing, damaged or of another form.
    """
    try:
        curves = read_json(run.curves, _Losses)
    except (OSError, *DAMAGED):
        return []
    losses = [attempt.series.loss for attempt in curves.attempts] if curves.v == FORM else []
    return [series for series in losses if series is not None]


def _lower(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else min(a, b)


def _higher(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else max(a, b)
