"""Which rows go into which step: a pure function of seed, epoch and lengths, so that a step's number says all.

A row is a tuple of sequences that share one line of a micro-batch (one, or several when packing). The cursor of a run
is the number of finished steps; nothing else needs to be remembered to continue.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from .packing import PackedRows, concatenate_rows, pack

Row = tuple[int, ...]


@dataclass(frozen=True)
class Reuse:
    """How often rows are trained on: `num_steps` steps of other rows, all of them `num_iterations` times in turn."""

    num_steps: int = 1
    num_iterations: int = 1

    @property
    def length(self) -> int:
        """Steps on the same rows and on those between."""
        return self.num_steps * self.num_iterations

    def fresh(self, step: int) -> int:
        """The steps (0-based) with other rows than all before that there were before the rows of `step` (1-based)."""
        block, place = divmod(step - 1, self.length)
        return block * self.num_steps + place % self.num_steps


MEGABATCH = 50  # steps whose rows are sorted together: transformers' figure for group_by_length


@dataclass(frozen=True)
class SourceShare:
    """Rows of one weight: `num_rows` of them in the plan, `per_epoch` in each epoch."""

    num_rows: int
    weight: float = 1.0

    @property
    def per_epoch(self) -> int:
        """Rows of it in an epoch: weight x rows, rounded."""
        return round(self.weight * self.num_rows)


@dataclass(frozen=True, eq=False)  # compared by identity: _order is cached by plan, and rows may be millions
class Plan:
    """Steps 1..max_steps over `rows`. Effective batch = rows per step over all micro-batches and ranks.

    `lengths` are the tokens of each row (int32); `shares` the parts of the rows, in their order. `places`: where each
    row stands in a sequential order, if not where it is among `rows`. `reuse`: of rows that are prompts.
    """

    rows: PackedRows
    lengths: np.ndarray
    shares: tuple[SourceShare, ...]
    effective_batch: int
    max_steps: int
    strategy: str
    seed: int
    places: np.ndarray | None = None
    reuse: Reuse = Reuse()

    @property
    def rows_per_epoch(self) -> int:
        """Rows of an epoch, packed ones counted once."""
        return sum(share.per_epoch for share in self.shares)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one may have fewer rows."""
        return math.ceil(self.rows_per_epoch / self.effective_batch) * self.reuse.num_iterations

    @property
    def first_steps(self) -> list[int]:
        """First steps of a curriculum's stages: none in a plan without one."""
        return []

    def epoch_of(self, step: int) -> float:
        """Passes over the rows finished after `step` steps."""
        return step / self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Whether a pass over the rows is finished with this step."""
        return step % self.steps_per_epoch == 0

    def peak_rate(self, step: int, otherwise: float) -> float:
        """The peak learning rate where the profile names one for a part of the run: here it does not."""
        return otherwise

    def sum_epoch(self, amounts: np.ndarray) -> int:
        """Sum over the sequences of the first epoch; `amounts`: of each sequence."""
        return int(amounts[self.rows.flat(self.order(0))].sum())

    def num_tokens(self, before: int, last: int) -> int:
        """Tokens of the steps from `before` + 1 to `last`; where weights let epochs differ, those between are means."""
        first, end = divmod(before, self.steps_per_epoch), divmod(last, self.steps_per_epoch)
        if last <= before:
            return 0
        return (
            self._tokens_of_first(*end) - self._tokens_of_first(*first) + round((end[0] - first[0]) * self._mean_epoch)
        )

    def _tokens_of_first(self, epoch: int, steps: int) -> int:
        """Tokens of the first steps of an epoch."""
        number, times = math.ceil(steps / self.reuse.num_iterations), self.reuse.num_iterations
        return int(self.lengths[self.order(epoch)[: number * self.effective_batch]].sum()) * times if steps else 0

    @property
    def _mean_epoch(self) -> float:
        ends = np.cumsum([share.num_rows for share in self.shares])
        parts = np.split(self.lengths, ends[:-1])
        return self.reuse.num_iterations * sum(
            share.per_epoch * float(part.mean()) for share, part in zip(self.shares, parts, strict=True) if len(part)
        )

    def step(self, number: int) -> list[Row]:
        """The rows of step `number` (1-based), longest first: micro-batches of like lengths need the least padding."""
        epoch, position = divmod(self.reuse.fresh(number), self.steps_per_epoch // self.reuse.num_iterations)
        numbers = self.order(epoch)[position * self.effective_batch : (position + 1) * self.effective_batch]
        by_length = numbers[np.argsort(-self.lengths[numbers], kind="stable")]
        return [self.rows[int(i)] for i in by_length]

    def stream(self, first: int, number: int) -> list[Row]:
        """`number` rows from place `first` (0-based) on of those of all epochs, one epoch after another."""
        places = (divmod(place, self.rows_per_epoch) for place in range(first, first + number))
        return [self.rows[int(self.order(epoch)[place])] for epoch, place in places]

    def longest(self, number: int) -> list[Row]:
        """The `number` rows of the first epoch with the most tokens."""
        order = self.order(0)
        numbers = order[np.argsort(-self.lengths[order], kind="stable")[:number]]
        return [self.rows[int(index)] for index in numbers]

    def order(self, epoch: int) -> np.ndarray:
        """The numbers of the rows of an epoch, in the order in which they are trained on."""
        return _order(self, epoch)


@lru_cache(maxsize=2)
def _order(plan: Plan, epoch: int) -> np.ndarray:
    rows = _rows_of_epoch(plan, epoch)
    if plan.strategy == "sequential":
        return rows if plan.places is None else rows[np.argsort(plan.places[rows], kind="stable")]
    random = np.random.default_rng([plan.seed, epoch])
    order = rows[random.permutation(len(rows))]
    if plan.strategy == "random":
        return order
    size = plan.effective_batch * MEGABATCH
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    by_length = np.concatenate([group[np.argsort(-plan.lengths[group], kind="stable")] for group in groups])
    num_full = len(order) // plan.effective_batch
    steps = by_length[: num_full * plan.effective_batch].reshape(num_full, plan.effective_batch)
    short = by_length[num_full * plan.effective_batch :]  # a short step can only be the last
    return np.concatenate([steps[random.permutation(num_full)].reshape(-1), short])


def _rows_of_epoch(plan: Plan, epoch: int) -> np.ndarray:
    """Every row as often as its weight says, in the plan's order.

    What is not a whole pass continues in a fixed shuffled circle where the epoch before ended: with weight 0.5
    two epochs see every row once.
    """
    parts, first = [], 0
    for number, share in enumerate(plan.shares):
        passes, remainder = divmod(share.per_epoch, max(1, share.num_rows))
        numbers = np.arange(first, first + share.num_rows, dtype=np.int32)
        parts += [numbers] * passes
        if remainder:
            circle = np.random.default_rng([plan.seed, 0x5A4E, number]).permutation(share.num_rows)
            places = np.arange(epoch * remainder, (epoch + 1) * remainder) % share.num_rows
            parts.append(np.sort(numbers[circle[places]]))
        first += share.num_rows
    return np.concatenate(parts)


def make_plan(
    lengths: np.ndarray,
    *,
    effective_batch: int,
    max_steps: int | None,
    num_train_epochs: float | None,
    strategy: str,
    seed: int,
    packing_length: int | None = None,
    sources: Sequence[SourceShare] = (),
    ranks: np.ndarray | None = None,
    reuse: Reuse | None = None,
) -> Plan:
    """The plan of a run. `packing_length` packs sequences into rows of at most that many tokens.

    `sources` cut the sequences into parts of their own weight; without them all have weight 1. When packing, sources
    of weight 1 are packed together and every other one by itself, so that its weight counts its packed rows; one that
    it would leave no row of is not packed.
    Without `max_steps` and `num_train_epochs` it is one epoch.

    `ranks` (int64, of each sequence) leaves out those below 0; the others stand in this order where the strategy is
    sequential, packed rows by the mean of theirs.
    """
    groups = _groups(sources or [SourceShare(len(lengths))], ranks)
    if packing_length:
        groups = _packing_groups(groups)
        packs = [_pack_source(lengths, members, packing_length, weight) for members, weight in groups]
    else:
        packs = [PackedRows.alone(len(members)).of(members) for members, _ in groups]
    shares = tuple(SourceShare(len(packed), weight) for packed, (_, weight) in zip(packs, groups, strict=True))
    rows = concatenate_rows(packs)
    reuse = reuse or Reuse()
    per_epoch = math.ceil(sum(share.per_epoch for share in shares) / effective_batch) * reuse.num_iterations
    if max_steps is None:
        max_steps = math.ceil((num_train_epochs or 1) * per_epoch)
    places = None if ranks is None else rows.means(ranks)
    return Plan(rows, rows.lengths(lengths), shares, effective_batch, max_steps, strategy, seed, places, reuse)


def _pack_source(lengths: np.ndarray, members: np.ndarray, room: int, weight: float) -> PackedRows:
    """Packed rows of these sequences, or one row each where the weight would leave no packed row in an epoch."""
    packed = pack(lengths[members], room)
    if len(packed) and not SourceShare(len(packed), weight).per_epoch:
        packed = PackedRows.alone(len(members))
    return packed.of(members)


def _groups(sources: Sequence[SourceShare], ranks: np.ndarray | None) -> list[tuple[np.ndarray, float]]:
    """The sequences of each source that take part, and its weight."""
    ends = list(accumulate(source.num_rows for source in sources))
    groups = [
        (np.arange(end - source.num_rows, end, dtype=np.int32), source.weight)
        for source, end in zip(sources, ends, strict=True)
    ]
    if ranks is None:
        return groups
    present = [(members[ranks[members] >= 0], weight) for members, weight in groups]
    return [(members, weight) for members, weight in present if len(members)]


def _packing_groups(groups: Sequence[tuple[np.ndarray, float]]) -> list[tuple[np.ndarray, float]]:
    """The sequences that may share rows, and their weight."""
    plain = [members for members, weight in groups if weight == 1]
    weighted = [(members, weight) for members, weight in groups if weight != 1]
    return ([(np.concatenate(plain), 1.0)] if plain else []) + weighted
