"""A model of glibc's malloc for one thread: from a trace to the resident memory that a process keeps for its tensors.

Source of every rule: malloc/malloc.c of glibc (`_int_malloc`, `_int_memalign`, `sysmalloc`, `_int_free`, `systrim`;
the same from 2.26 to 2.37). A block freed inside the heap stays resident: only the heap's end is given back, and blocks
with a mapping of their own.

A tensor asks for 96 bytes more than it keeps, so as to be aligned; what is left over goes to small objects. While those
of autograd's graph live, the hole of a freed tensor is a little too small for the next one of the same size: on a CPU
LoRA holds half as much again as its tensors.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from .trace import Trace
from .tracker import Event, PhaseMark

ALIGNMENT = 64  # torch's, for every tensor (c10/core/alignment.h)
FIRST_THRESHOLD = 128 << 10  # DEFAULT_MMAP_THRESHOLD: larger blocks get a mapping of their own; it grows with them
LAST_THRESHOLD = 32 << 20  # DEFAULT_MMAP_THRESHOLD_MAX
PAD = 128 << 10  # DEFAULT_TOP_PAD: what the heap grows by beyond what is asked for, and keeps when it shrinks
PAGE, LEAST = 4096, 32  # LEAST: MINSIZE
CONSOLIDATED = 64 << 10  # FASTBIN_CONSOLIDATION_THRESHOLD: freeing more than that may shrink the heap
CACHED, LARGEST_CACHED = 7, 1040  # TCACHE_FILL_COUNT, MAX_TCACHE_SIZE: chunks of a size that are never joined to others
OF_TENSOR = (112, 208)  # StorageImpl, TensorImpl
OF_NODE = (24, 40)  # edges of a node of autograd's graph, and what it counts with; larger ones change nothing here
FEW = 3  # blocks that are left of a layer whose activations are not kept: its output, a mask

Chunk = tuple[int, int]
"""Address and size. A mapping of its own has the address -1."""


def resident_peak(trace: Trace) -> int:
    """The most bytes that a process holds for the tensors of a trace."""
    heap, graphs, keeps = Heap(), dict[int | None, list[Chunk]](), set[int | None]()
    ends = [mark.index for mark in trace.marks[1:]] + [len(trace.events)]
    for mark, end in zip(trace.marks, ends, strict=True):
        events = trace.events[mark.index : end]
        if mark.phase == "forward" and (mark.layer is None or _num_left(events) > FEW):
            keeps.add(mark.layer)
            graphs.setdefault(mark.layer, []).extend(heap.replay(events, has_graph=True))
            continue
        again = mark.phase in ("forward", "backward") and mark.layer is not None and mark.layer not in keeps
        heap.forget(heap.replay(events, has_graph=again))  # computed again, and differentiated in one go
        _forget_graphs(heap, graphs, mark)
    return heap.peak


def _num_left(events: Sequence[Event]) -> int:
    made = {number for number, size in events if size > 0}
    return len(made - {number for number, size in events if size < 0})


def _forget_graphs(heap: "Heap", graphs: dict[int | None, list[Chunk]], mark: PhaseMark) -> None:
    """The graph of a layer goes with its backward pass, the rest with the end of it."""
    if mark.phase == "backward" and mark.layer is not None:
        heap.forget(graphs.pop(mark.layer, []))
    elif mark.phase == "optimizer":
        for chunks in graphs.values():
            heap.forget(chunks)
        graphs.clear()


class Heap:
    """Replays events. `resident` is what they hold now, `peak` the most, both in bytes."""

    def __init__(self) -> None:
        self.resident = self.peak = 0
        self._threshold = self._trim = FIRST_THRESHOLD
        self._held: dict[int, list[Chunk]] = {}
        self._cached: dict[int, list[int]] = {}  # size -> addresses
        self._sizes: list[tuple[int, int]] = []  # of free chunks: (size, address), sorted
        self._begins: dict[int, int] = {}  # address -> size
        self._ends: dict[int, int] = {}  # address behind it -> address
        self._top = self._end = 16  # the last chunk, free, is [top, end)

    def replay(self, events: Sequence[Event], *, has_graph: bool) -> list[Chunk]:
        """Follow the events. Returns the chunks of the graph that autograd made meanwhile, to be forgotten later."""
        graph: list[Chunk] = []
        for number, size in events:
            if size > 0:
                self._held[number] = [self._aligned(size), *map(self._small, OF_TENSOR)]
                if has_graph:
                    graph += map(self._small, OF_NODE)
            else:
                self.forget(self._held.pop(number, []))
            self.peak = max(self.peak, self.resident)
        return graph

    def forget(self, chunks: Sequence[Chunk]) -> None:
        """Free them."""
        for address, size in chunks:
            self._free(address, size)

    def _aligned(self, size: int) -> Chunk:
        """posix_memalign: a chunk with room to move in, cut at both ends."""
        needed = _chunk_size(size)
        address, room = self._take(needed + ALIGNMENT + LEAST)
        if address < 0:
            return address, room
        begin = -(-(address + 16) // ALIGNMENT) * ALIGNMENT - 16
        if 0 < begin - address < LEAST:
            begin += ALIGNMENT
        if begin > address:
            self._free(address, begin - address)
        rest = address + room - begin - needed
        if rest < LEAST:
            return begin, needed + rest
        self._free(begin + needed, rest)
        return begin, needed

    def _small(self, size: int) -> Chunk:
        needed = _chunk_size(size)
        if cached := self._cached.get(needed):
            return cached.pop(), needed
        return self._take(needed)

    def _take(self, needed: int) -> Chunk:
        """The smallest free chunk that is large enough, else a mapping, else from the heap's end."""
        place = bisect_left(self._sizes, (needed, 0))
        if place < len(self._sizes):
            room, address = self._sizes[place]
            self._pull(address, room)
            if room - needed < LEAST:
                return address, room
            self._put(address + needed, room - needed)
            return address, needed
        if self._end - self._top < needed + LEAST:
            if needed >= self._threshold:
                size = -(-(needed + 8) // PAGE) * PAGE
                self.resident += size
                return -1, size
            self._grow(-(-(needed + PAD + LEAST - (self._end - self._top)) // PAGE) * PAGE)
        address, self._top = self._top, self._top + needed
        return address, needed

    def _grow(self, size: int) -> None:
        self._end += size
        self.resident += size

    def _free(self, address: int, size: int) -> None:
        if address < 0:
            self.resident -= size
            if self._threshold < size <= LAST_THRESHOLD:
                self._threshold, self._trim = size, 2 * size
            return
        if size <= LARGEST_CACHED and len(cached := self._cached.setdefault(size, [])) < CACHED:
            cached.append(address)
            return
        if (following := self._begins.get(address + size)) is not None:
            self._pull(address + size, following)
            size += following
        if (before := self._ends.get(address)) is not None:
            self._pull(before, address - before)
            address, size = before, size + address - before
        if address + size == self._top:
            self._top = address
        else:
            self._put(address, size)
        if size >= CONSOLIDATED and self._end - self._top >= self._trim:
            self._grow(-max(0, (self._end - self._top - PAD - LEAST) // PAGE * PAGE))

    def _put(self, address: int, size: int) -> None:
        insort(self._sizes, (size, address))
        self._begins[address] = size
        self._ends[address + size] = address

    def _pull(self, address: int, size: int) -> None:
        del self._sizes[bisect_left(self._sizes, (size, address))]
        del self._begins[address], self._ends[address + size]


def _chunk_size(size: int) -> int:
    return max(LEAST, -(-(size + 8) // 16) * 16)
