"""How fast this device multiplies and copies: measured, for the least time that a step could take on it."""

import time
from collections.abc import Callable

import torch

SECONDS = 0.4  # for each measurement
SIDES = {"cpu": (1024, 2048), "cuda": (4096, 8192)}
"""Of square matrices: large enough for the full speed, some of which it reaches with one size and some with another."""
COPIED = 256 << 20
"""Bytes: more than any cache holds."""


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of matrix products in a type, the best of several."""
    return max(_rate_of_side(device, dtype, side) for side in SIDES[device.type])


def _rate_of_side(device: torch.device, dtype: torch.dtype, side: int) -> float:
    left, right = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    result = torch.empty(side, side, device=device, dtype=dtype)
    return 2 * side**3 / _least_seconds(device, lambda: torch.mm(left, right, out=result))


def bandwidth(device: torch.device) -> float:
    """Bytes a second that a copy reads and writes in the device's memory, the best of several."""
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return 2 * COPIED / _least_seconds(device, lambda: target.copy_(source))


def _least_seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of the fastest call within SECONDS, the first one not counted."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    work()
    while time.perf_counter() < end or best == float("inf"):
        wait_for(device)
        start = time.perf_counter()
        work()
        wait_for(device)
        best = min(best, time.perf_counter() - start)
    return best


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
