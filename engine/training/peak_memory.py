"""The most memory that a run takes: steps and an evaluation on the longest rows there are, and what was held then."""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..planning.plan import Row
from ..runtime.live_overrides import MICRO_BATCH, value_at
from ..system.memory import no_memory
from ..system.rng import RngState
from .context import Training
from .evaluate import batch_loss
from .prefetch import Feed
from .prepare import Prepared
from .step import SMALLER, Update


def take_longest(training: Training, num_steps: int) -> dict[str, Any]:
    """Take steps with the longest rows of the first epoch, in one or two micro-batches of the profile's size.

    More than two would take no more memory: from the second on, gradients are added to those that are there. The
    seconds are the median of a step without the first, which pays for what is done once.

    Raises:
        GpuMemoryError, HostMemoryError: it only fits in smaller micro-batches, or not at all.
    """
    train, device = training.profile.train, training.hardware.device
    rows = longest_rows(training.prepared, train.per_device_train_batch_size)
    step = rows * min(2, train.gradient_accumulation_steps)
    seconds: list[float] = []
    with Feed(training.prepared, training.ranks, lambda number: step) as feed:
        update = Update(training, feed)
        for _ in range(num_steps):
            begun = time.perf_counter()
            update.take(RngState.capture(device))
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - begun)
    if (fitting := value_at(training.state.settings, MICRO_BATCH, num_steps)) is not None:
        size = train.per_device_train_batch_size
        raise no_memory(device, f"micro-batches of {size} rows; {fitting:.0f} would fit", SMALLER)
    lengths = training.prepared.train.sequences.lengths[training.prepared.train.indices]
    return {
        "step_seconds": statistics.median(seconds[1:]),
        "num_tokens": int(sum(lengths[list(row)].sum() for row in step)),
        "longest": int(max(lengths[list(row)].sum() for row in rows)),
        "micro_batch": len(rows),
    }


def longest_rows(prepared: Prepared, number: int) -> list[Row]:
    """As many rows of the first epoch, those with the most tokens."""
    return prepared.plan.longest(number)


def evaluate_longest(training: Training) -> int:
    """One evaluation batch of the longest rows, where the profile evaluates; returns how many they were.

    Raises:
        GpuMemoryError, HostMemoryError: it does not fit.
    """
    rows = training.prepared.evaluation
    if rows is None:
        return 0
    size = training.profile.eval.per_device_eval_batch_size
    longest = rows.indices[np.argsort(-rows.sequences.lengths[rows.indices], kind="stable")[:size]]
    training.model.eval()
    found = batch_loss(training, [rows.sequences[int(index)] for index in longest])
    training.model.train()
    if found is None:
        hint = "Lower eval.per_device_eval_batch_size."
        raise no_memory(training.hardware.device, f"evaluation in batches of {size} rows", hint)
    return len(longest)


def peaks(device: torch.device, before: int | None) -> dict[str, int | None]:
    """The most bytes so far: of tensors, of torch's allocator, of the process. `None`: hidden.

    On a GPU the process holds the driver's context and the libraries' handles beside the allocator's blocks: what is
    used of the card now, less those blocks and what was used `before` this process came.
    """
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        now = used_on_card(device)
        if now is None or before is None:
            return {"allocated": allocated, "reserved": reserved, "process": None}
        context = max(0, now - before - torch.cuda.memory_reserved(device))
        return {"allocated": allocated, "reserved": reserved, "process": reserved + context}
    if device.type == "mps":
        driver = torch.mps.driver_allocated_memory()
        return {"allocated": None, "reserved": driver, "process": driver}
    return {"allocated": None, "reserved": None, "process": peak_resident()}


def used_on_card(device: torch.device) -> int | None:
    """Bytes that are taken of the card by everything on it, as NVML says; `None` where that is hidden, or no card."""
    if device.type != "cuda":
        return None
    import pynvml

    index = torch.cuda.current_device() if device.index is None else device.index
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(index))
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    except pynvml.NVMLError:
        return None


def peak_resident() -> int:
    """The most resident memory this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # macOS counts bytes
