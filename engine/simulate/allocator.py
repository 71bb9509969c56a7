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


class OutOfMemory(Exception):
    """The events do not fit below the limit, not even after giving back what lies idle."""


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
    """Replays events. `expandable`: as with `expandable_segments:True`. `limit`: bytes that may be reserved."""

    def __init__(self, expandable: bool = False, limit: int | None = None) -> None:
        self.expandable, self.limit = expandable, limit
        self.reserved = self.peak_reserved = self.allocated = self.peak_allocated = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # (size, address), sorted
        self._at: dict[int, Block] = {}  # every free block, by address
        self._held: dict[int, Block] = {}
        self._next = {True: 1 << 60, False: 1 << 40}
        self._tail: dict[bool, Block | None] = {True: None, False: None}

    def replay(self, events: Iterable[tuple[int, int]]) -> Replay:
        """Follow the events to their end; may be called again with more of them.

        Raises:
            OutOfMemory: more than `limit` would have to be reserved.
        """
        held = self._held
        for number, size in events:
            if size > 0:
                held[number] = self._take(size)
            elif size == 0:  # tracker.CLEAR
                self.forget_idle()
            elif number in held:
                self._give_back(held.pop(number))
        return Replay(self.peak_allocated, self.peak_reserved)

    def forget_idle(self) -> None:
        """Give back whole segments that hold nothing, as `empty_cache` does."""
        for pool in self._free.values():
            idle = [entry for entry in pool if self._is_whole(self._at[entry[1]])]
            for size, address in idle:
                pool.remove((size, address))
                block = self._at.pop(address)
                self.reserved -= size
                if self._tail[block.is_small] is block:
                    self._tail[block.is_small] = None

    def _take(self, size: int) -> Block:
        small = size <= SMALL
        pool = self._free[small]
        place = bisect_left(pool, (size, 0))
        block = self._grow(size, small) if place == len(pool) else self._at.pop(pool.pop(place)[1])
        rest = block.size - size
        if rest >= LEAST if small or self.expandable else rest > SMALL:
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
        elif self._tail[block.is_small] is block:
            self._tail[block.is_small] = rest
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
        if self._tail[first.is_small] is second:
            self._tail[first.is_small] = first

    def _grow(self, size: int, small: bool) -> Block:
        if self.expandable:
            return self._extend(size, small)
        wanted = SMALL_SEGMENT if small else LARGE_SEGMENT if size < LARGE else -(-size // STEP) * STEP
        self._reserve(wanted)
        block = Block(wanted, self._next[False], small)
        self._next[False] += wanted + SMALL  # never beside the one before: segments do not merge
        return block

    def _extend(self, size: int, small: bool) -> Block:
        """One segment a pool, which grows at its end; what is free there is used with it."""
        tail = self._tail[small]
        have = tail.size if tail is not None and tail.is_free else 0
        page = SMALL_SEGMENT if small else LARGE_SEGMENT
        wanted = -(-(size - have) // page) * page
        self._reserve(wanted)
        address, self._next[small] = self._next[small], self._next[small] + wanted
        tail = self._tail[small]  # reserving may have given it back
        if tail is not None and tail.is_free:
            self._pull(tail)
            tail.size += wanted
            return tail
        block = Block(wanted, address, small, True, tail)
        if tail is not None:
            tail.after = block
        self._tail[small] = block
        return block

    def _reserve(self, size: int) -> None:
        if self.limit is not None and self.reserved + size > self.limit:
            self.forget_idle()
            if self.reserved + size > self.limit:
                raise OutOfMemory(f"{self.reserved + size} bytes of {self.limit}")
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _is_whole(self, block: Block) -> bool:
        return block.before is None and block.after is None
