"""What to change so that a run fits its card, or uses it whole: found by asking the closed form many times over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ftui.estimate import closed_form, timing
from ftui.estimate.levers import (
    ACCUMULATION,
    LESS,
    MAX_LENGTH,
    MICRO_BATCH,
    OTHER,
    SHORTER,
    SPEED,
    Key,
    Lever,
    apply_levers,
    effective,
    list_axes,
    list_needed,
)
from ftui.estimate.result import FIT, SAFE, Memory, Verdict, usable, verdict
from ftui.estimate.setup import TrainingSetup, with_length
from ftui.hardware.devices import Card

MemoryOf = Callable[[TrainingSetup], Memory]
Steps = tuple[int, ...]
"""How far each axis of levers is pulled: 0 = not at all."""

ROUND = 64  # tokens: lengths are proposed in multiples of it
MOST = 6  # suggestions
MOST_TRIED = 50
"""Combinations of one kind that are computed: all kinds together stay below a second with the slowest shapes."""


@dataclass(frozen=True)
class Change:
    """Something to change in a profile.

    Attributes:
        values: the keys, as they would stand in the profile. "none" turns a key off.
        reasons: why each part of it helps, and what it costs, in words.
        slower: share of the speed that is lost (below 0: it becomes faster) with the rows as they are; `None` where it
            is not known: how much longer rows become that are not cut any more, nobody has counted. That others become
            shorter makes nothing faster: they are no longer the same rows.
        memory, verdict: what comes of it.
    """

    values: Mapping[Key, Any]
    reasons: tuple[str, ...]
    slower: float | None
    memory: Memory
    verdict: Verdict


def find_possible(
    setup: TrainingSetup, memory_of: MemoryOf = closed_form.memory, tokens: float | None = None
) -> list[Change]:
    """Where the card cannot train it whatever its memory: what must be changed, and what more it takes to fit then."""
    must = list_needed(setup)
    changed = apply_levers(setup, must)
    memory, values = memory_of(changed), {key: value for lever in must for key, value in lever.values.items()}
    reasons = tuple(lever.reason for lever in must)
    if (fits := verdict(memory, setup.card)) in FIT:
        return [Change(values, reasons, None, memory, fits)]
    more = find_cheapest(changed, memory_of, tokens)
    return [replace(change, values={**values, **change.values}, reasons=(*reasons, *change.reasons)) for change in more]


def find_cheapest(
    setup: TrainingSetup, memory_of: MemoryOf = closed_form.memory, tokens: float | None = None
) -> list[Change]:
    """Changes that make it fit, the best of each kind: those that cost speed alone come first, then those that make it
    less exact or train less, then those that cut rows, then another method. None changes more than another needs.

    Where neither of the first two kinds has one, changes take their place whose verdict is `tight` for no reason but
    doubt: a simulation knows more (`ftui estimate`), and may well find that they fit.

    Args:
        tokens: of an average step, as they were counted; without it, as if every row were as long as the longest.
    """
    search = _Search(setup, memory_of, _is_sure, tokens)
    speed, less = search.smallest(SPEED), search.smallest((*SPEED, *LESS), LESS)
    shorter, other = search.smallest((*SPEED, *SHORTER), SHORTER), search.smallest((*SPEED, *OTHER), OTHER)
    for more in (LESS[:1], LESS):  # only where that is not enough
        shorter = shorter or search.smallest((*SPEED, *more, *SHORTER), SHORTER)
    other = other or search.smallest((*SPEED, *OTHER, *SHORTER), OTHER)
    if not speed and not less:
        doubtful = _Search(setup, memory_of, _is_doubtful, tokens)
        speed, less = doubtful.smallest(SPEED), doubtful.smallest((*SPEED, *LESS), LESS)
        search.memories |= doubtful.memories
    kinds = [search.rank(steps) for steps in (speed, less, shorter, other)]
    in_turn = sorted((place, kind) for kind, changes in enumerate(kinds) for place in range(len(changes)))
    return [kinds[kind][place] for place, kind in sorted(in_turn[:MOST], key=lambda both: both[::-1])]


def largest_micro_batch(
    setup: TrainingSetup, memory_of: MemoryOf = closed_form.memory, tokens: float | None = None
) -> Change | None:
    """The largest micro-batch that fits with the same effective batch; `None` where not even one row does, or where
    it is what it is already."""
    rows = setup.micro_batch * setup.accumulation
    for size in sorted((n for n in range(1, rows + 1) if rows % n == 0), reverse=True):
        changed = replace(setup, micro_batch=size, accumulation=rows // size)
        memory = memory_of(changed)
        if (fits := verdict(memory, setup.card)) in FIT:
            if size == setup.micro_batch:
                return None
            values = {MICRO_BATCH: size, ACCUMULATION: rows // size}
            why = f"micro-batches of {size}: as many rows at once as fit; {effective(setup)}"
            return Change(values, (why,), _slower(setup, changed, tokens), memory, fits)
    return None


def longest_rows(setup: TrainingSetup, memory_of: MemoryOf = closed_form.memory) -> Change | None:
    """The largest `data.max_length` that fits, at most the model's positions.

    `None` where no longer rows fit, and where none is known to be cut: then longer ones would change nothing.
    """
    if not setup.rows_are_cut:
        return None
    most = setup.shape.context or 1 << 20
    fits, fails = 0, most // ROUND + 1  # in multiples of ROUND; memory grows with the length
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if verdict(memory_of(with_length(setup, middle * ROUND)), setup.card) in FIT:
            fits = middle
        else:
            fails = middle
    length = fits * ROUND
    if length <= setup.length:
        return None
    changed = with_length(setup, length)
    memory = memory_of(changed)
    why = f"rows of up to {length} tokens" + (", all that the model can see" if length >= most - ROUND else "")
    return Change({MAX_LENGTH: length}, (why,), None, memory, verdict(memory, setup.card))


class _Search:
    """Combinations of levers. Memory falls with every step on every axis (nearly), so that one that fits, or does not,
    speaks for all beyond it, or before it. But where micro-batches begin to be added up, gradients are held that were
    not before."""

    def __init__(
        self, setup: TrainingSetup, memory_of: MemoryOf, is_enough: Callable[[Memory, Card], bool], tokens: float | None
    ) -> None:
        self._setup, self._memory_of, self._is_enough = setup, memory_of, is_enough
        self._axes = list_axes(setup)
        self._adds_up = list(self._axes).index("micro-batch") if setup.accumulation == 1 else None
        self._tokens = tokens
        self.memories: dict[Steps, Memory] = {}
        self._fit: list[Steps] = []
        self._fail: list[Steps] = []

    def smallest(self, names: Sequence[str], among: Sequence[str] = ()) -> list[Steps]:
        """Those that fit and pull only these axes, one of `among` at least, and none of them further than it must."""
        ranges = [range(len(levers) + 1 if name in names else 1) for name, levers in self._axes.items()]
        places = [place for place, name in enumerate(self._axes) if not among or name in among]
        unknown = sorted(
            (
                steps
                for steps in product(*ranges)
                if any(steps[place] for place in places)
                and not any(_is_within(tried, steps) for tried in self._fit)
                and not any(self._fails_too(steps, tried) for tried in self._fail)
            ),
            key=sum,
        )
        fitting: list[Steps] = []
        for number in range(MOST_TRIED):
            if not unknown:
                break
            # where all of it does not help, with and without smaller micro-batches, nothing does
            steps = unknown[len(unknown) // 2] if number > 1 else unknown[-1]
            if self._fits(steps):
                fitting.append(steps)
                unknown = [other for other in unknown if not _is_within(steps, other)]
            else:
                unknown = [other for other in unknown if not self._fails_too(other, steps)]
        return [steps for steps in fitting if not any(less != steps and _is_within(less, steps) for less in fitting)]

    def _fits(self, steps: Steps) -> bool:
        memory = self._memory_of(apply_levers(self._setup, self._levers(steps)))
        self.memories[steps] = memory
        fits = self._is_enough(memory, self._setup.card)
        (self._fit if fits else self._fail).append(steps)
        return fits

    def _fails_too(self, steps: Steps, failed: Steps) -> bool:
        """Whether it cannot fit, since `failed` does not."""
        place = self._adds_up
        return _is_within(steps, failed) and (place is None or bool(steps[place]) == bool(failed[place]))

    def _levers(self, steps: Steps) -> list[Lever]:
        return [levers[step - 1] for levers, step in zip(self._axes.values(), steps, strict=True) if step]

    def rank(self, combinations: Sequence[Steps]) -> list[Change]:
        """The changes: the longest rows first, then the fastest, then the fewest keys."""
        place = list(self._axes).index(SHORTER[0])
        both = [(steps[place], self._change(steps)) for steps in combinations]
        both.sort(key=lambda pair: (pair[0], pair[1].slower or 0.0, len(pair[1].values)))
        return [change for _, change in both]

    def _change(self, steps: Steps) -> Change:
        levers, memory = self._levers(steps), self.memories[steps]
        values = {key: value for lever in levers for key, value in lever.values.items()}
        slower = _slower(self._setup, apply_levers(self._setup, levers), self._tokens)
        return Change(
            values, tuple(lever.reason for lever in levers), slower, memory, verdict(memory, self._setup.card)
        )


def _is_sure(memory: Memory, card: Card) -> bool:
    return verdict(memory, card) in FIT


def _is_doubtful(memory: Memory, card: Card) -> bool:
    """Whether there is the room that every published run would have needed, though not for all doubts."""
    return memory.process * SAFE <= usable(card)


def _is_within(less: Steps, more: Steps) -> bool:
    """Whether `more` pulls every axis at least as far as `less`."""
    return all(a <= b for a, b in zip(less, more, strict=True))


def _slower(setup: TrainingSetup, changed: TrainingSetup, tokens: float | None) -> float | None:
    """With rows as long as they are now, `tokens` of them in a step."""
    tokens = tokens or float(setup.length * setup.micro_batch * setup.accumulation * setup.num_processes)
    before = timing.step_seconds(setup, tokens)
    after = timing.step_seconds(with_length(changed, setup.length), tokens)
    return None if before is None or after is None else 1 - before / after
