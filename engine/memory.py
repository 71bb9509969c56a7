"""Memory the engine uses, measured."""

import psutil
import torch

_process = psutil.Process()


def used_bytes(device: torch.device) -> int:
    """On a GPU the peak reserved by torch since the start; elsewhere the resident memory of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    return int(_process.memory_info().rss)
