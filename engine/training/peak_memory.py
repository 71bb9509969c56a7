"""The most memory that a run takes, measured by steps and an evaluation on its longest rows."""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from ftui.profile.schema import Profile

from ..distributed.process_group import ProcessGroup
from ..models.model_parts import ModelParts
from ..runtime.control_flags import Control
from ..runtime.event_writer import EventWriter
from ..system.memory import no_memory, peak_resident
from ..system.rng import RngState
from ..system.train_state import MICRO_BATCH, TrainState
from .collate import collate_examples
from .evaluate import batch_loss
from .forward_backward import ForwardBackward
from .prefetch import Prefetcher, StepSource
from .prepare import TrainingData
from .step import SMALLER, StepRunner


def run_longest(
    profile: Profile, data: TrainingData, parts: ModelParts, control: Control, events: EventWriter, num_steps: int
) -> dict[str, Any]:
    """Take steps with the longest rows of the first epoch, in one or two micro-batches of the profile's size.

    More than two would take no more memory: from the second on, gradients are added to those that are there. The
    seconds are the median of a step without the first, which pays for what is done once.

    Raises:
        GpuMemoryError, HostMemoryError: it only fits in smaller micro-batches, or not at all.
    """
    size = profile.micro_batch
    rows = data.plan.longest(size)
    step = rows * min(2, profile.accumulation)
    with Prefetcher(data, ProcessGroup(), lambda number: step, layout=parts.layout) as source:
        seconds = time_steps(profile, data, parts, source, control, events, num_steps)
    lengths, examples = data.lengths, [number for row in rows for number in row]
    answers = data.train.indices.reshape(-1, data.train.per_example)[examples]
    return {
        "step_seconds": seconds,
        "num_tokens": int(sum(lengths[list(row)].sum() for row in step)),
        "longest": int(data.train.sequences.lengths[answers].max()),
        "longest_example": data.train.longest_example(rows),
        "micro_batch": len(rows),
    }


def time_steps(
    profile: Profile, data: TrainingData, parts: ModelParts, source: StepSource, control: Control, events: EventWriter,
    num_steps: int,
) -> float:  # fmt: skip
    """Take steps on what `source` gives: the median of their seconds without the first.

    Raises:
        GpuMemoryError, HostMemoryError: it only fits in smaller micro-batches, or not at all.
    """
    device, ranks, state = parts.device, ProcessGroup(), TrainState()
    passes = ForwardBackward(parts, ranks, source, profile.train.max_grad_norm, control, events)
    steps = StepRunner(profile, data.plan, parts, state, ranks, events, passes)
    seconds: list[float] = []
    for _ in range(num_steps):
        start = time.perf_counter()
        steps.run(RngState.capture(device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    if (fitting := state.value_at(MICRO_BATCH, num_steps)) is not None:
        raise no_memory(device, f"micro-batches of {profile.micro_batch} rows; {fitting:.0f} would fit", SMALLER)
    return statistics.median(seconds[1:])


def evaluate_longest(profile: Profile, data: TrainingData, parts: ModelParts) -> int:
    """One evaluation batch of the longest rows, where the profile evaluates; returns how many they were.

    Raises:
        GpuMemoryError, HostMemoryError: it does not fit.
    """
    rows, size = data.evaluation, profile.eval.per_device_eval_batch_size
    if rows is None or profile.samples_answers:  # then answers are given, as for a rollout
        return 0
    longest = [(int(number),) for number in rows.longest_first[:size]]
    parts.model.eval()
    result = batch_loss(parts, collate_examples(rows, longest, data.pad_id, parts.layout), profile)
    parts.model.train()
    if result is None:
        hint = "Lower eval.per_device_eval_batch_size."
        raise no_memory(parts.device, f"evaluation in batches of {size} rows", hint)
    return len(longest)


def reset_peaks(device: torch.device) -> bool:
    """Begin anew with what `peaks` tells; whether that is possible here (not on macOS, nor where /proc is closed)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM becomes what is resident now (proc(5))
    except OSError:
        return False
    return device.type == "cpu"


def peaks(device: torch.device, before: int | None) -> dict[str, int | None]:
    """The most bytes so far: of tensors, of torch's allocator, of the process. `None`: hidden.

    On a GPU the process holds the driver's context and the libraries' handles beside the allocator's blocks: what is
    used of the card now, less those blocks and what was used `before` this process came.
    """
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        now = card_memory_in_use(device)
        if now is None or before is None:
            return {"allocated": allocated, "reserved": reserved, "process": None}
        context = max(0, now - before - torch.cuda.memory_reserved(device))
        return {"allocated": allocated, "reserved": reserved, "process": reserved + context}
    if device.type == "mps":
        driver = torch.mps.driver_allocated_memory()
        return {"allocated": None, "reserved": driver, "process": driver}
    return {"allocated": None, "reserved": None, "process": peak_resident()}


def card_memory_in_use(device: torch.device) -> int | None:
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
