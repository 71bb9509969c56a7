"""Whether it fits: a range of memory against what a card has."""

from ftui.estimate.result import Memory, Verdict
from ftui.hardware.devices import Card

SAFE = 1.15
"""Of 135 published runs none took more than 15 % above what was simulated for it (tests/engine/published)."""
FIT: tuple[Verdict, ...] = ("fits", "likely")


def usable(card: Card) -> int:
    """Bytes a process may take on the card, its context counted.

    A hundredth of what the driver shows is left out, for what it keeps to itself: 1 to 2.5 % were seen, the context
    among them.
    """
    return int(card.memory * 0.99) if card.kind == "cuda" else card.memory


def verdict(memory: Memory | None, card: Card) -> Verdict:
    """`fits`: even 15 % more would; `likely`: the top of the range does; `tight`: only the estimate itself; else `no`.

    A measured value has a range of its own that needs no more room. Without an estimate, or where the card hides how
    much it has, it is `unknown`.
    """
    room = usable(card)
    if memory is None or room <= 0:
        return "unknown"
    safe = memory.high if memory.basis == "measured here" else max(memory.high, int(memory.process * SAFE))
    if safe <= room:
        return "fits"
    if memory.high <= room:
        return "likely"
    return "tight" if memory.process <= room else "no"


IN_WORDS: dict[Verdict, str] = {
    "fits": "with room for 15 % more",
    "likely": "so does the top of its range",
    "tight": "the top of its range would not fit",
    "no": "it needs more than there is",
    "unknown": "",
}
