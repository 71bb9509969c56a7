"""Seconds and memory of the phases of some work, told apart."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from ..training.peak_memory import peaks, reset_peaks
from .machine_speed import wait_for

Peaks = dict[str, int | None]


class PhaseCost(NamedTuple):
    """`process`: the most bytes of the process in it, `None` where that is hidden."""

    seconds: float
    process: int | None


class PhaseClock:
    """Measures blocks by name. `before`: see `peaks`."""

    def __init__(self, device: torch.device, before: int | None) -> None:
        self.costs: dict[str, PhaseCost] = {}
        self._device, self._before, self._most = device, before, Peaks()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A block that is one phase; of a name that comes twice the seconds are added up, and the larger peak stays."""
        self.most()
        is_apart = reset_peaks(self._device)
        start = time.perf_counter()
        yield
        wait_for(self._device)
        seconds = time.perf_counter() - start
        process = peaks(self._device, self._before)["process"] if is_apart else None
        former = self.costs.get(name, PhaseCost(0.0, process))
        largest = None if process is None or former.process is None else max(process, former.process)
        self.costs[name] = PhaseCost(former.seconds + seconds, largest)

    def most(self) -> Peaks:
        """What `peaks` tells of all time so far."""
        for name, value in peaks(self._device, self._before).items():
            known = self._most.get(name)
            self._most[name] = value if known is None else None if value is None else max(known, value)
        return self._most
