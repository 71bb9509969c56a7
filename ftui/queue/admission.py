"""Which runs are started on which cards: pure, from runs in their order and cards as they stand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ftui.queue.waiting_runs import Kind
from ftui.units import size

EMPTY = 0.95  # of a card's memory is free at least while nobody uses it


@dataclass(frozen=True)
class Slot:
    """A card, or the CPU as one: bytes of memory (0: hidden) and how many of them are free (`None`: hidden).

    `is_taken`: a run of ftui has it, `holder` by name where that is known. `has_others`: other processes compute on it.
    """

    card: str
    kind: Kind
    title: str = ""
    memory: int = 0
    free: int | None = None
    is_taken: bool = False
    has_others: bool = False
    holder: str = ""


@dataclass(frozen=True)
class Need:
    """What a run waits for. `cards`: ids of those it may use; `None`: all."""

    run_id: str
    kind: Kind
    num_cards: int = 1
    memory: int | None = None
    cards: frozenset[str] | None = None


@dataclass(frozen=True)
class Admission:
    """The cards of each run that is to be started now, in their order; why each of the others waits, in words."""

    starts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def choose(needs: Sequence[Need], slots: Sequence[Slot]) -> Admission:
    """Give the cards to the runs in their order.

    A run that must wait keeps the cards it could use for itself, as many as it needs: a later one gets only others, so
    that it delays nobody before it. A run that needs more cards than there are keeps none.
    """
    admission = Admission()
    left = list(slots)
    for need in needs:
        room = _room(need, slots)
        every = [slot for slot in slots if _may_use(need, slot, room)]
        own = [slot for slot in every if slot in left]
        ready = sorted((slot for slot in own if _is_ready(slot, room)), key=lambda slot: slot.memory)
        if len(every) < need.num_cards:
            admission.reasons[need.run_id] = _too_few(need, len(every))
            continue
        if len(ready) >= need.num_cards:
            kept = ready[: need.num_cards]
            admission.starts[need.run_id] = tuple(slot.card for slot in kept)
        else:
            kept = sorted(own, key=lambda slot: (not _is_ready(slot, room), not slot.is_taken))[: need.num_cards]
            admission.reasons[need.run_id] = _why_waiting(need, own, len(ready), room)
        left = [slot for slot in left if slot not in kept]
    return admission


def _room(need: Need, slots: Sequence[Slot]) -> int:
    """Bytes that must be free on each of its cards. Never more than the largest has while nobody uses it: the range of
    an estimate may reach beyond the card."""
    largest = max((slot.memory for slot in slots if slot.kind == need.kind), default=0)
    return min(need.memory or 0, int(largest * EMPTY))


def _may_use(need: Need, slot: Slot, room: int) -> bool:
    is_large_enough = not slot.memory or int(slot.memory * EMPTY) >= room
    return slot.kind == need.kind and is_large_enough and (need.cards is None or slot.card in need.cards)


def _is_ready(slot: Slot, room: int) -> bool:
    return not slot.is_taken and not slot.has_others and (slot.free is None or slot.free >= room)


def _too_few(need: Need, number: int) -> str:
    return f"needs {need.num_cards} cards; it may use {number} of this machine" if number else "no card it may use"


def _who_has(holders: Sequence[str]) -> str:
    """`: a and b have them`, the first two by name; "" where nobody is known."""
    if not holders:
        return ""
    names = list(holders[:2]) if len(holders) < 3 else [holders[0], f"{len(holders) - 1} others"]
    return f": {names[0]} has it" if len(names) == 1 else f": {' and '.join(names)} have them"


def _why_waiting(need: Need, own: Sequence[Slot], num_ready: int, room: int) -> str:
    free = [slot for slot in own if not slot.is_taken]
    if need.num_cards > 1 and num_ready:
        return f"has {num_ready} of {need.num_cards} cards, waits for the rest"
    if any(slot.has_others for slot in free):
        return "other processes are on the card"
    if free:
        return f"needs {size(room)} free"
    cards = "a card" if need.num_cards == 1 else f"{need.num_cards} cards"
    holders = sorted({slot.holder for slot in own if slot.holder})
    return f"waits for {cards}" + _who_has(holders)
