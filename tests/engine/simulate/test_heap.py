"""The model of glibc's malloc against glibc itself, in a process that does nothing else."""

import json
import platform
import random
import subprocess
import sys

import pytest

from ftui.engine.simulate.heap import OF_NODE, OF_TENSOR, Heap
from ftui.engine.simulate.tracker import Event
from ftui.hardware.devices import MiB

REAL = """
import ctypes, json, sys
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]
told = json.load(sys.stdin)
libc, held, graph, at = ctypes.CDLL(None), {}, [], ctypes.c_void_p()
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Info, ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc.argtypes = [ctypes.c_size_t]
libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
def resident():
    info = libc.mallinfo2()
    return info.arena + info.hblkhd
first, peak = resident() - libc.mallinfo2().fordblks, 0
for number, size in told["events"]:
    if size > 0:
        libc.posix_memalign(ctypes.byref(at), 64, size)
        held[number] = [at.value, *map(libc.malloc, told["tensor"])]
        graph += map(libc.malloc, told["node"])
    else:
        for address in held.pop(number):
            libc.free(address)
    peak = max(peak, resident())
print(peak - first)
"""


def events_of(seed: int) -> list[Event]:
    """Layers that make tensors of a few sizes and keep some; then all go, last made first."""
    draw, events, kept = random.Random(seed), list[Event](), list[Event]()
    sizes = [64 * draw.randint(20, 40_000) for _ in range(6)] + [20 * MiB, 40 * MiB]
    for _ in range(60):
        made = [(len(events) + i, size) for i, size in enumerate(draw.choices(sizes, [6] * 6 + [1, 1], k=12))]
        events += made
        for number, size in draw.sample(made, 8):
            made.remove((number, size))
            events.append((number, -size))
        kept += made
    return events + [(number, -size) for number, size in reversed(kept)]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a model of glibc")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_graph", [False, True])
def test_the_heap_grows_as_that_of_glibc(seed: int, has_graph: bool) -> None:
    events, heap = events_of(seed), Heap()
    heap.replay(events, has_graph=has_graph)
    told = json.dumps({"events": events, "tensor": OF_TENSOR, "node": OF_NODE if has_graph else ()})
    command = [sys.executable, "-I", "-c", REAL]
    found = int(subprocess.run(command, input=told, capture_output=True, text=True, check=True).stdout)
    alive = top = 0
    for _, size in events:
        alive += size
        top = max(top, alive)
    print(f"tensors {top / MiB:.0f} MiB, glibc {found / MiB:.0f}, predicted {heap.peak / MiB:.0f}")
    assert abs(heap.peak / found - 1) <= (0.08 if has_graph else 0.03)
