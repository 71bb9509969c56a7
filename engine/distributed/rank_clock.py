"""How long this rank computes in a step, and how long it is in exchanges with the others."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class RankTime(NamedTuple):
    """Seconds of one rank in one step, and the `places` (tokens and padding) that it computed in its passes."""

    passes: float
    data: float
    communication: float
    places: int


class RankClock:
    """Adds up the time of exchanges: from where this rank reaches one to its end, so that it has the wait for slower
    ranks and what is sent.

    A host is ahead of its GPU: there, it is the GPU that reaches an exchange, at a mark in its queue, and the seconds
    between two marks are read when the host next waits for it. That costs no wait of its own.
    """

    def __init__(self, device: torch.device, *, is_needed: bool) -> None:
        self._device = device
        self._is_needed = is_needed
        self.begin()

    def begin(self) -> None:
        """A step begins, or is taken again."""
        self._seconds = 0.0
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """A block in which ranks exchange something."""
        if not self._is_needed:
            yield
        elif self._device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            yield
            end.record()
            self._marks.append((begin, end))
        else:
            start = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - start

    def read(self, seconds: float, data: float, places: int) -> RankTime:
        """The time of a step that took this long after its rows had come; the device has done all of it."""
        exchanged = self._seconds + sum(begin.elapsed_time(end) for begin, end in self._marks) / 1000
        return RankTime(max(0.0, seconds - exchanged), data, exchanged, places)


class CountedGather:
    """How FSDP gathers a layer, as an exchange of the clock. For CPUs: there a gathering ends where it is called.

    On a GPU it goes on beside the computation, so that its time says nothing of how long the passes waited for it.
    """

    def __init__(self, clock: RankClock) -> None:
        self._clock = clock

    def allocate(self, size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Room for what is gathered."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        """FSDP's names; returns the work under way where `async_op`."""
        with self._clock.exchange():
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
