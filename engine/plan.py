"""Which rows go into which step: a pure function of seed, epoch and lengths, so that a step's number says all.

A row is a tuple of sequences that share one line of a micro-batch (one, or several when packing). The cursor of a run
is the number of finished steps; nothing else needs to be remembered to continue.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Row = tuple[int, ...]

MEGABATCH = 50  # steps whose rows are sorted together: transformers' figure for group_by_length


@dataclass(frozen=True, eq=False)  # compared by identity: _order is cached by plan, and rows may be millions
class Plan:
    """Steps 1..max_steps over `rows`. Effective batch = rows per step over all micro-batches and ranks."""

    rows: tuple[Row, ...]
    lengths: tuple[int, ...]
    effective_batch: int
    max_steps: int
    strategy: str
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.rows) / self.effective_batch)

    def epoch_of(self, step: int) -> float:
        """Passes over the rows finished after `step` steps."""
        return step / self.steps_per_epoch

    def step(self, number: int) -> list[Row]:
        """The rows of step `number` (1-based), longest first: micro-batches of like lengths need the least padding."""
        epoch, position = divmod(number - 1, self.steps_per_epoch)
        order = _order(self, epoch)
        chosen = order[position * self.effective_batch : (position + 1) * self.effective_batch]
        return [self.rows[i] for i in sorted(chosen, key=lambda i: -self.lengths[i])]


@lru_cache(maxsize=2)
def _order(plan: Plan, epoch: int) -> list[int]:
    """Every row of the epoch once, cut into steps by position."""
    if plan.strategy == "sequential":
        return list(range(len(plan.rows)))
    random = np.random.default_rng([plan.seed, epoch])
    order = random.permutation(len(plan.rows))
    if plan.strategy == "random":
        return [int(i) for i in order]
    lengths = np.asarray(plan.lengths)
    size = plan.effective_batch * MEGABATCH
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    by_length = np.concatenate([group[np.argsort(-lengths[group], kind="stable")] for group in groups])
    steps = [by_length[i : i + plan.effective_batch] for i in range(0, len(order), plan.effective_batch)]
    short = [steps.pop()] if len(steps[-1]) < plan.effective_batch else []  # a short step can only be the last
    shuffled = [steps[i] for i in random.permutation(len(steps))]
    return [int(i) for step in shuffled + short for i in step]


def make_plan(
    lengths: np.ndarray,
    *,
    effective_batch: int,
    max_steps: int | None,
    num_train_epochs: float | None,
    strategy: str,
    seed: int,
    packing_length: int | None = None,
) -> Plan:
    """The plan of a run. `packing_length` packs sequences into rows of at most that many tokens.

    Without `max_steps` and `num_train_epochs` it is one epoch.
    """
    rows = pack(lengths, packing_length) if packing_length else tuple((i,) for i in range(len(lengths)))
    row_lengths = tuple(int(sum(lengths[i] for i in row)) for row in rows)
    per_epoch = math.ceil(len(rows) / effective_batch)
    if max_steps is None:
        max_steps = math.ceil((num_train_epochs or 1) * per_epoch)
    return Plan(rows, row_lengths, effective_batch, max_steps, strategy, seed)


def pack(lengths: np.ndarray, room: int) -> tuple[Row, ...]:
    """Best-fit decreasing: every sequence goes, longest first, to the fullest row that still has room for it."""
    by_space: list[list[int]] = [[] for _ in range(room + 1)]  # rows by the tokens they still have room for
    rows: list[list[int]] = []
    for index in np.argsort(-lengths, kind="stable"):
        length = int(lengths[index])
        space = next((s for s in range(length, room + 1) if by_space[s]), None)
        if space is None:
            rows.append([])
            number, space = len(rows) - 1, room
        else:
            number = by_space[space].pop()
        rows[number].append(int(index))
        by_space[space - length].append(number)
    return tuple(tuple(row) for row in rows)
