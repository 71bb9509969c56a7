"""Which device, which precision, how many threads: decided once, from what the machine really has."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ftui.errors import HardwareError
from ftui.profile.sections import Profile


@dataclass(frozen=True)
class Hardware:
    """`precision` is `bf16`, `fp16` or `fp32`: the type of the heavy arithmetic."""

    device: torch.device
    precision: str
    num_threads: int
    name: str
    driver: str | None

    @property
    def compute_dtype(self) -> torch.dtype:
        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self.precision]


def find_hardware(profile: Profile) -> Hardware:
    """Choose the device, set torch's threads.

    Raises:
        HardwareError: the profile asks for a device that torch cannot use, or NVML shows a GPU torch cannot use.
    """
    if profile.train.full_determinism:
        be_deterministic()
    kind: str = profile.hardware.device
    if kind == "auto":
        kind = _best_device()
    elif kind == "cuda" and not torch.cuda.is_available():
        raise _cuda_trouble()
    elif kind == "mps" and not torch.backends.mps.is_available():
        raise HardwareError("torch finds no MPS device here.", hint='Set hardware.device = "cpu".')
    num_threads = profile.hardware.num_threads or max(1, usable_cores() // profile.hardware.num_processes)
    torch.set_num_threads(num_threads)  # 1 and 2 threads give other last bits: set, and recorded
    device = torch.device(kind)
    precision = profile.train.precision
    if precision == "auto":
        precision = best_precision(device)
    name = torch.cuda.get_device_name() if kind == "cuda" else _processor_name()
    return Hardware(device, precision, num_threads, name, _nvidia_driver() if kind == "cuda" else None)


def usable_cores() -> int:
    """Cores this process may use: its affinity, cut by the cgroup's quota (a pod sees all cores of its host)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if num_nvidia_gpus():
        raise _cuda_trouble()
    return "mps" if torch.backends.mps.is_available() else "cpu"


def num_nvidia_gpus() -> int:
    """GPUs the driver shows, whatever torch can do with them; 0 where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def _nvidia_driver() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _cuda_trouble() -> HardwareError:
    driver = _nvidia_driver()
    if driver is None:
        return HardwareError("There is no NVIDIA GPU or driver here.", hint='Set hardware.device = "cpu" or "auto".')
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return HardwareError(
            "This process sees no GPU: CUDA_VISIBLE_DEVICES is empty, or names fewer than hardware.num_processes.",
            hint='Name one GPU for each process, or insist on the CPU with hardware.device = "cpu".',
        )
    build = torch.version.cuda or "a CPU-only build"
    return HardwareError(
        f"The driver ({driver}) shows a GPU, but torch {torch.__version__} (CUDA: {build}) cannot use it.",
        hint='Install a torch build for this driver, or insist on the CPU with hardware.device = "cpu".',
    )


def best_precision(device: torch.device) -> Literal["bf16", "fp16", "fp32"]:
    """The fastest one the device is made for. NVIDIA GPUs before Ampere (T4, V100) have units for fp16 only."""
    if has_fast_bf16(device):
        return "bf16"
    return "fp16" if device.type == "cuda" else "fp32"


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes faster in bf16 than in fp32.

    On x86 that takes AMX: with AVX512-BF16 alone, LoRA on a 135 M model ran at 152 tokens/s in bf16 and 203 in fp32
    (medians of 3 alternated runs, 2 cores).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        flags = _cpu_flags()
        return bool({"amx_bf16", "bf16"} & flags)  # the second is ARM's name
    return False


def _cpu_lines() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return {}
    lines = info.read_text().split("\n")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _cpu_flags() -> set[str]:
    lines = _cpu_lines()
    return set((lines.get("flags") or lines.get("Features") or "").split())


def cpu_features() -> str:
    """The vector units that decide which kernels the CPU's libraries choose."""
    return " ".join(
        sorted(f for f in _cpu_flags() if f.startswith(("avx", "amx", "fma", "sse4", "asimd", "sve", "bf16")))
    )


def be_deterministic() -> None:
    """Deterministic kernels only, wherever there are any. To be called before the GPU is first used.

    The variables are those of cuBLAS and FlashAttention for reproducible results.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def _processor_name() -> str:
    return _cpu_lines().get("model name") or platform.processor() or platform.machine()
