"""How much memory the device holds for this process, and what running out of it looks like."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import torch

from ftui.errors import FtuiError, GpuMemoryError, HostMemoryError
from ftui.hardware.detect import available_memory

Result = TypeVar("Result")


class UpdateMemoryError(GpuMemoryError):
    """Memory ran out where nothing can be put back: the run goes on from its newest checkpoint.

    In the optimizer's update, which may have changed some weights, or in a pass that other ranks are in the middle of.
    """


def used_bytes(device: torch.device) -> int:
    """On a GPU the peak reserved by torch since the start; elsewhere the resident memory of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    return int(psutil.Process().memory_info().rss)


def peak_resident() -> int:
    """The most resident memory this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # macOS counts bytes


def spare_host_bytes() -> int:
    """Host memory that nobody uses, and that this process does not need either to become as large as it ever was.

    A step on the CPU takes memory that is free between two steps; files that the kernel keeps count as free.
    """
    return available_memory() - max(0, peak_resident() - int(psutil.Process().memory_info().rss))


def is_out_of_memory(error: BaseException) -> bool:
    """torch says it in three ways: its own class (CUDA), a RuntimeError (MPS; CUDA outside its allocator), and another
    one where the host gives nothing more."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("out of memory" in text or "DefaultCPUAllocator" in text)


def within_memory(work: Callable[[], Result], *, can_retry: bool = True) -> tuple[Result | None, str]:
    """What `work` returns, or `None` and why memory ran out: then its traceback is gone, and all that it kept alive.

    Without `can_retry` the error is raised.
    """
    try:
        return work(), ""
    except RuntimeError as error:
        if not can_retry or not is_out_of_memory(error):
            raise
        return None, first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's message; torch appends its C++ stack to some."""
    return str(error).split("\n")[0]


def no_memory(device: torch.device, place: str, hint: str) -> FtuiError:
    """The error for memory that ran out where nothing smaller can be tried."""
    if device.type == "cpu":
        return HostMemoryError(f"The machine has too little memory for {place}.", hint=hint)
    return GpuMemoryError(f"The GPU has too little memory for {place}.", hint=hint)


def out_of_memory(error: Exception) -> FtuiError:
    """The error for memory that ran out where nothing else handles it (loading, mostly)."""
    device = torch.device("cpu" if isinstance(error, MemoryError) or "CPUAllocator" in str(error) else "cuda")
    return no_memory(device, f"this ({str(error).splitlines()[0]})", "Take a smaller model or a larger machine.")


def return_freed_memory() -> None:
    """Return to the system what was freed on the host.

    glibc keeps blocks below 32 MiB: of a base of 510 MB that was quantised tensor by tensor, 110 MB were in use and 670
    taken. Elsewhere it does nothing.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


M_MMAP_THRESHOLD, LARGE = -3, 1 << 20  # malloc.h of glibc; bytes


def return_large_blocks() -> None:
    """From now on, return to the system what is freed on the host in blocks of 1 MiB and more, in this process.

    Else glibc raises that limit to 32 MiB as such blocks are freed, and keeps them: a model of 402 MB with DoRA, which
    makes whole matrices in each layer, took 880 to 977 MB, and takes 600. A pass costs 2 to 4 % more time on a CPU.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(M_MMAP_THRESHOLD, LARGE)


def release_cached_memory(device: torch.device) -> None:
    """Return cached blocks to the device, so that blocks of another size fit."""
    gc.collect()
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).empty_cache()
