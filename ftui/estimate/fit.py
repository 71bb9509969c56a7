"""What to change so that a run fits its card, or uses it whole.

The closed form is asked many times over for the smallest changes that would do. Where the model can be simulated, each
of them is, least loss first, before anybody sees it: what does not fit after all is dropped, and looked for again.
"""

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
from ftui.estimate.result import SAFE, Memory, Verdict, usable, verdict
from ftui.estimate.setup import TrainingSetup, with_length

MemoryOf = Callable[[TrainingSetup], Memory]
Simulate = Callable[[TrainingSetup, Mapping[Key, Any]], Memory | None]
"""The true figure for a changed setup and the keys that were changed; `None` where the engine refuses the change."""
Steps = tuple[int, ...]
"""How far each axis of levers is pulled: 0 = not at all."""

ROUND = 64  # tokens: lengths are proposed in multiples of it
HOST_AXES = ("micro-batch", "stored", "state", "place", "base", "method")
"""Of which memory of the host depends."""
MOST_TRIED = 50
"""Combinations of one kind that are computed: all kinds together stay below a second with the slowest shapes."""
ROUNDS = 3
"""Looks for the smallest changes of a kind; after each of them the guesses are better by what was simulated."""

KINDS = (((*SPEED,), (), 3), ((*SPEED, *LESS), LESS, 2), ((*SPEED, *OTHER), OTHER, 1))
"""By what they cost, the least first: the axes that may be pulled, of which one must be, and how many are shown."""
ONLY_WAY = tuple((*SPEED, *more, *SHORTER) for more in ((), LESS[:1], LESS, OTHER))
"""Rows are cut where nothing else fits, with no more of the rest than that takes."""


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


def likely_need(memory: Memory) -> float:
    """Bytes that are room enough for a change: what every published run would have needed, whatever the doubts are."""
    return min(memory.high, memory.process * SAFE)


def sure_need(memory: Memory) -> float:
    """Bytes that are room enough to use a card better, where nothing has to change: the top of the range."""
    return memory.high


class Judge:
    """What a change takes: in closed form as a guess, simulated where that can be done.

    The closed form is moved by what the last simulation, of the same method if there is one, was off.
    """

    def __init__(
        self, memory_of: MemoryOf = closed_form.memory, simulate: Simulate | None = None, *,
        need: Callable[[Memory], float] = likely_need,
    ) -> None:  # fmt: skip
        self.guess, self._simulate, self._need = memory_of, simulate, need
        self._ratios: dict[str, float] = {}
        self._ratio = 1.0

    @property
    def is_simulating(self) -> bool:
        """Whether what it confirms is simulated."""
        return self._simulate is not None

    def compare(self, setup: TrainingSetup, simulated: Memory) -> None:
        """Take note of a simulation."""
        self._ratios[setup.method] = self._ratio = self._need(simulated) / self._need(self.guess(setup))

    def seems_to_fit(self, setup: TrainingSetup, memory: Memory) -> bool:
        """Whether there is room for it, by its guess (`memory`)."""
        return self._need(memory) * self._ratios.get(setup.method, self._ratio) <= usable(setup.card)

    def confirm(self, setup: TrainingSetup, values: Mapping[Key, Any], memory: Memory) -> Memory | None:
        """What it really takes, if that fits; `memory`: its guess."""
        simulated = memory if self._simulate is None else self._simulate(setup, values)
        if simulated is None:
            return None
        if self.is_simulating:
            self.compare(setup, simulated)
        return simulated if self._need(simulated) <= usable(setup.card) else None


LIKELY, SURE = Judge(), Judge(need=sure_need)


def find_possible(setup: TrainingSetup, judge: Judge = LIKELY, tokens: float | None = None) -> list[Change]:
    """Where the card cannot train it whatever its memory: what must be changed, and what more it takes to fit then."""
    must = list_needed(setup)
    changed, values = apply_levers(setup, must), {key: value for lever in must for key, value in lever.values.items()}
    reasons = tuple(lever.reason for lever in must)
    if (memory := judge.confirm(changed, values, judge.guess(changed))) is not None:
        return [Change(values, reasons, None, memory, verdict(memory, setup.card))]
    more = find_cheapest(changed, judge, tokens, values)
    return [replace(change, reasons=(*reasons, *change.reasons)) for change in more]


def find_cheapest(
    setup: TrainingSetup, judge: Judge = LIKELY, tokens: float | None = None, also: Mapping[Key, Any] | None = None
) -> list[Change]:
    """Changes that make it fit, least loss first: those that cost speed alone, then those that make it less exact or
    train less, then another method. None changes more than another needs. Rows are cut only where nothing else fits.

    Some have the verdict `tight` for no reason but doubt: see `likely_need`.

    Args:
        tokens: of an average step, as they were counted; without it, as if every row were as long as the longest.
        also: keys that were changed before, to write down with each change.
    """
    search = _Search(setup, judge, tokens, also or {})
    changes = [change for kind in KINDS for change in search.find(*kind)]
    for names in ONLY_WAY:
        changes = changes or search.find(names, SHORTER, 1)
    return changes


def largest_micro_batch(setup: TrainingSetup, judge: Judge = SURE, tokens: float | None = None) -> Change | None:
    """The largest micro-batch that fits with the same effective batch; `None` where not even one row does, or where
    it is what it is already."""
    rows = setup.micro_batch * setup.accumulation
    for size in sorted((n for n in range(1, rows + 1) if rows % n == 0), reverse=True):
        changed = replace(setup, micro_batch=size, accumulation=rows // size)
        guess = judge.guess(changed)
        if not judge.seems_to_fit(changed, guess):
            continue
        if size == setup.micro_batch:
            return None
        values = {MICRO_BATCH: size, ACCUMULATION: rows // size}
        if (memory := judge.confirm(changed, values, guess)) is not None:
            why = f"micro-batches of {size}: as many rows at once as fit; {effective(setup)}"
            return Change(values, (why,), _slower(setup, changed, tokens), memory, verdict(memory, setup.card))
    return None


def longest_rows(setup: TrainingSetup, judge: Judge = SURE) -> Change | None:
    """The largest `data.max_length` that fits, at most the model's positions.

    `None` where no longer rows fit, and where none is known to be cut: then longer ones would change nothing.
    """
    if not setup.rows_are_cut:
        return None
    most = setup.shape.context or 1 << 20
    for _ in range(ROUNDS):
        length = ROUND * _largest(most // ROUND, lambda number: _seems_to_fit(judge, setup, number * ROUND))
        if length <= setup.length:
            return None
        changed, values = with_length(setup, length), {MAX_LENGTH: length}
        memory = judge.confirm(changed, values, judge.guess(changed))
        if memory is not None:
            why = f"rows of up to {length} tokens"
            why += ", all that the model can see" if length >= (setup.shape.context or 1 << 20) - ROUND else ""
            return Change(values, (why,), None, memory, verdict(memory, setup.card))
        most = length - ROUND
    return None


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, 0 where none does: larger ones take more."""
    least, fails = 0, most + 1
    while fails - least > 1:
        middle = (least + fails) // 2
        least, fails = (middle, fails) if fits(middle) else (least, middle)
    return least


def _seems_to_fit(judge: Judge, setup: TrainingSetup, length: int) -> bool:
    changed = with_length(setup, length)
    return judge.seems_to_fit(changed, judge.guess(changed))


class _Search:
    """Combinations of levers. Memory falls with every step on every axis (nearly), so that one that fits, or does not,
    speaks for all beyond it, or before it. But where micro-batches begin to be added up, gradients are held that were
    not before."""

    def __init__(self, setup: TrainingSetup, judge: Judge, tokens: float | None, also: Mapping[Key, Any]) -> None:
        self._setup, self._judge, self._tokens, self._also = setup, judge, tokens, also
        self._axes = list_axes(setup)
        self._adds_up = list(self._axes).index("micro-batch") if setup.accumulation == 1 else None
        self._memories: dict[Steps, Memory] = {}
        self._changes: dict[Steps, Change | None] = {}  # what was confirmed, and what was not
        self._fit: list[Steps] = []
        self._fail: list[Steps] = []
        self._host: dict[Steps, bool] = {}

    def find(self, names: Sequence[str], among: Sequence[str], most: int) -> list[Change]:
        """The first few changes of a kind, each of them confirmed; see `smallest`."""
        earlier, steps = [*self._fit], list[Steps]()
        for _ in range(ROUNDS if self._judge.is_simulating else 1):
            if self._judge.is_simulating:  # each simulation makes better guesses
                self._fit = [*earlier]
                self._fail = [steps for steps, change in self._changes.items() if change is None]
            steps = self._rank(self.smallest(names, among))[:most]
            if self._changes.keys() >= set(steps):
                break
            self._changes |= {one: self._confirm(one) for one in steps if one not in self._changes}
        return [change for one in steps if (change := self._changes[one]) is not None]

    def _confirm(self, steps: Steps) -> Change | None:
        levers = self._levers(steps)
        changed = apply_levers(self._setup, levers)
        values = {**self._also, **{key: value for lever in levers for key, value in lever.values.items()}}
        memory = self._judge.confirm(changed, values, self._memories[steps])
        if memory is None:
            return None
        slower = _slower(self._setup, changed, self._tokens)
        return Change(
            values, tuple(lever.reason for lever in levers), slower, memory, verdict(memory, self._setup.card)
        )

    def smallest(self, names: Sequence[str], among: Sequence[str] = ()) -> list[Steps]:
        """Those that fit and pull only these axes, one of `among` at least, and none of them further than it must."""
        ranges = [range(len(levers) + 1 if name in names else 1) for name, levers in self._axes.items()]
        places = [place for place, name in enumerate(self._axes) if not among or name in among]
        unknown = sorted(
            (
                steps
                for steps in product(*ranges)
                if any(steps[place] for place in places)
                and not self._is_settled(steps)
                and self._has_host_memory(steps)
                and not any(_is_within(tried, steps) for tried in self._fit)
                and not any(self._fails_too(steps, tried) for tried in self._fail)
            ),
            key=sum,
        )
        fitting: list[Steps] = []
        for number in range(MOST_TRIED):
            if not unknown:
                break
            # where the most of it does not help, with and without smaller micro-batches, little does
            steps = unknown[len(unknown) // 2] if number > 1 else unknown[-1]
            if self._fits(steps):
                fitting.append(steps)
                unknown = [other for other in unknown if not _is_within(steps, other)]
            else:
                unknown = [other for other in unknown if not self._fails_too(other, steps)]
        return [steps for steps in fitting if not any(less != steps and _is_within(less, steps) for less in fitting)]

    def _fits(self, steps: Steps) -> bool:
        changed = apply_levers(self._setup, self._levers(steps))
        self._memories[steps] = memory = self._judge.guess(changed)
        fits = self._judge.seems_to_fit(changed, memory)
        (self._fit if fits else self._fail).append(steps)
        return fits

    def _fails_too(self, steps: Steps, failed: Steps) -> bool:
        """Whether it cannot fit, since `failed` does not."""
        place = self._adds_up
        return _is_within(steps, failed) and (place is None or bool(steps[place]) == bool(failed[place]))

    def _is_settled(self, steps: Steps) -> bool:
        """Whether it pulls an axis to which another lever leaves no choice."""
        pulled = {name for name, step in zip(self._axes, steps, strict=True) if step}
        return any(name in pulled for lever in self._levers(steps) for name in lever.settles)

    def _has_host_memory(self, steps: Steps) -> bool:
        """Whether there is room on the machine for what is offloaded; of what hardly changes that, nothing is asked."""
        asked = tuple(step if name in HOST_AXES else 0 for name, step in zip(self._axes, steps, strict=True))
        if self._setup.host_memory is None:
            return True
        if asked not in self._host:
            self._host[asked] = not closed_form.lacks_host_memory(apply_levers(self._setup, self._levers(asked)))
        return self._host[asked]

    def _levers(self, steps: Steps) -> list[Lever]:
        return [levers[step - 1] for levers, step in zip(self._axes.values(), steps, strict=True) if step]

    def _rank(self, combinations: Sequence[Steps]) -> list[Steps]:
        """The longest rows first, then those that lose least, then the fastest, then the fewest keys."""
        places = [list(self._axes).index(name) for name in (*SHORTER, *OTHER, *LESS)]

        def cost(steps: Steps) -> tuple[Any, ...]:
            levers = self._levers(steps)
            slower = _slower(self._setup, apply_levers(self._setup, levers), self._tokens)
            num_keys = sum(len(lever.values) for lever in levers)
            by_gpus_first = steps[list(self._axes).index("place")]  # of what costs the same
            return *(steps[place] for place in places), slower or 0.0, by_gpus_first, num_keys, steps

        return sorted(combinations, key=cost)


def _is_within(less: Steps, more: Steps) -> bool:
    """Whether `more` pulls every axis at least as far as `less`."""
    return all(a <= b for a, b in zip(less, more, strict=True))


def _slower(setup: TrainingSetup, changed: TrainingSetup, tokens: float | None) -> float | None:
    """With rows as long as they are now, `tokens` of them in a step."""
    tokens = tokens or float(setup.num_tokens * setup.accumulation * setup.num_processes)
    before = timing.step_seconds(setup, tokens)
    after = timing.step_seconds(with_length(changed, setup.length), tokens)
    return None if before is None or after is None else 1 - before / after
