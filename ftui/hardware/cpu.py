"""The CPU: how many cores this process may use, and which of its units matter for training."""

import os
import platform
from pathlib import Path

BF16_UNITS = {"amx_bf16", "bf16"}  # the second is ARM's name; AVX512-BF16 alone is slower than float32


def usable_cores() -> int:
    """Cores this process may use: its affinity, cut by the cgroup's quota (a pod sees all cores of its host)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def has_fast_bf16() -> bool:
    """Whether the CPU computes faster in bf16 than in fp32.

    On x86 that takes AMX: with AVX512-BF16 alone, LoRA on a 135 M model ran at 152 tokens/s in bf16 and 203 in fp32
    (medians of 3 alternated runs, 2 cores).
    """
    return bool(BF16_UNITS & cpu_flags())


def cpu_flags() -> set[str]:
    """The flags of the first core in /proc/cpuinfo; empty where there is no such file."""
    lines = _cpu_lines()
    return set((lines.get("flags") or lines.get("Features") or "").split())


def cpu_features() -> str:
    """The vector units that decide which kernels the CPU's libraries choose."""
    return " ".join(
        sorted(f for f in cpu_flags() if f.startswith(("avx", "amx", "fma", "sse4", "asimd", "sve", "bf16")))
    )


def processor_name() -> str:
    """The maker's name of the CPU, else its architecture."""
    return _cpu_lines().get("model name") or platform.processor() or platform.machine()


def _cpu_lines() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return {}
    lines = info.read_text().split("\n")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
