"""A model of torch's CUDA caching allocator for one stream: from events to the bytes it reserves.

Source of every rule: c10/cuda/CUDACachingAllocator.cpp of pytorch (the same rules from 2.1 to 2.13).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from ftui.hardware.devices import MiB

SMALL = 1 * MiB  # kSmallSize: blocks up to here live in the pool of small ones
SMALL_SEGMENT = 2 * MiB  # kSmallBuffer
LARGE_SEGMENT = 20 * MiB  # kLargeBuffer
LARGE = 10 * MiB  # kMinLargeAlloc: from here on a segment is made to measure
STEP = 2 * MiB  # kRoundLarge: in steps of this
LEAST = 512  # kMinBlockSize


@dataclass(slots=True)
class Block:
    """A piece of a segment; `before` and `after` are its neighbours there."""

    size: int
    address: int
    is_small: bool
    is_free: bool = True
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(frozen=True)
class Replay:
    """Peaks in bytes: of what tensors hold (whole blocks, as `memory_allocated` counts), and of what is reserved."""

    allocated: int
    reserved: int


class Allocator:
    """Replays events on a card that has room for all of them (without `expandable_segments`)."""

    def __init__(self) -> None:
        self.reserved = self.peak_reserved = self.allocated = self.peak_allocated = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # (size, address), sorted
        self._at: dict[int, Block] = {}  # every free block, by address
        self._held: dict[int, Block] = {}
        self._next = 1 << 40  # address of the next segment

    def replay(self, events: Iterable[tuple[int, int]]) -> Replay:
        """Follow the events to their end; may be called again with more of them."""
        blocks = self._held
        for number, size in events:
            if size > 0:
                blocks[number] = self._take(size)
            elif size == 0:  # tracker.CLEAR
                self.forget_idle()
            elif number in blocks:
                self._give_back(blocks.pop(number))
        return Replay(self.peak_allocated, self.peak_reserved)

    def forget_idle(self) -> None:
        """Give back whole segments that hold nothing, as `empty_cache` does."""
        for pool in self._free.values():
            idle = [entry for entry in pool if self._is_whole(self._at[entry[1]])]
            for size, address in idle:
                pool.remove((size, address))
                del self._at[address]
                self.reserved -= size

    def _take(self, size: int) -> Block:
        small = size <= SMALL
        pool = self._free[small]
        place = bisect_left(pool, (size, 0))
        block = self._grow(size, small) if place == len(pool) else self._at.pop(pool.pop(place)[1])
        rest = block.size - size
        if rest >= LEAST if small else rest > SMALL:
            self._split(block, size)
        block.is_free = False
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.address + size, block.is_small, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._put(rest)

    def _put(self, block: Block) -> None:
        insort(self._free[block.is_small], (block.size, block.address))
        self._at[block.address] = block

    def _pull(self, block: Block) -> None:
        pool = self._free[block.is_small]
        del pool[bisect_left(pool, (block.size, block.address))]
        del self._at[block.address]

    def _give_back(self, block: Block) -> None:
        self.allocated -= block.size
        block.is_free = True
        after, before = block.after, block.before
        if after is not None and after.is_free:
            self._pull(after)
            self._join(block, after)
        if before is not None and before.is_free:
            self._pull(before)
            self._join(before, block)
            block = before
        self._put(block)

    def _join(self, first: Block, second: Block) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first

    def _grow(self, size: int, small: bool) -> Block:
        segment = SMALL_SEGMENT if small else LARGE_SEGMENT if size < LARGE else -(-size // STEP) * STEP
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        block = Block(segment, self._next, small)
        self._next += segment + SMALL  # never beside the one before: segments do not merge
        return block

    def _is_whole(self, block: Block) -> bool:
        return block.before is None and block.after is None
