"""Which device, which precision, how many threads: decided once, from what the machine really has."""

import os
from dataclasses import dataclass
from typing import Literal

import torch
from transformers.utils.import_utils import enable_tf32

from ftui.errors import HardwareError
from ftui.hardware import cpu
from ftui.profile.schema import Profile

AMPERE = 80  # the compute capability, times ten, from which on there are bf16, tf32 and flash attention


@dataclass(frozen=True)
class Hardware:
    """The device that trains. `precision` is the type of its heavy arithmetic: `bf16`, `fp16` or `fp32`.

    `capability` is an NVIDIA card's compute capability times ten (89), else 0. `is_here` = in this machine, whose
    packages are those of the run then.
    """

    device: torch.device
    precision: str
    num_threads: int
    name: str
    driver: str | None
    capability: int = 0
    is_here: bool = True

    @property
    def compute_dtype(self) -> torch.dtype:
        """The torch type of `precision`."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self.precision]


def find_hardware(profile: Profile, device: str | None = None) -> Hardware:
    """The device that the profile trains on here, and the precision. Changes nothing: see `settle_torch`.

    `device` takes the place of the profile's.

    Raises:
        HardwareError: the profile asks for a device that torch cannot use, or NVML shows a GPU torch cannot use.
    """
    kind: str = device or profile.hardware.device
    if kind == "auto":
        kind = _best_device()
    elif kind == "cuda" and not torch.cuda.is_available():
        raise _cuda_trouble()
    elif kind == "mps" and not torch.backends.mps.is_available():
        raise HardwareError("torch finds no MPS device here.", hint='Set hardware.device = "cpu".')
    on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", profile.hardware.num_processes))
    num_threads = profile.hardware.num_threads or max(1, cpu.usable_cores() // on_this_machine)
    place = torch.device(kind)
    precision = profile.train.precision
    if precision == "auto":
        precision = best_precision(place)
    name = torch.cuda.get_device_name() if kind == "cuda" else cpu.processor_name()
    if kind != "cuda":
        return Hardware(place, precision, num_threads, name, None)
    major, minor = torch.cuda.get_device_capability()
    return Hardware(place, precision, num_threads, name, _nvidia_driver(), 10 * major + minor)


def settle_torch(profile: Profile, hardware: Hardware) -> None:
    """Give torch the threads, the rounding and the determinism that the profile asks for, for the whole process."""
    torch.set_num_threads(hardware.num_threads)  # 1 and 2 threads give other last bits: set, and recorded
    if profile.train.tf32:
        enable_tf32(True)
    if profile.train.full_determinism:
        make_deterministic()


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
            hint="Name one GPU for each process, take fewer (`ftui resume RUN --set hardware.num_processes=N`), or "
            'insist on the CPU with hardware.device = "cpu".',
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
    """Whether the device computes faster in bf16 than in fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and cpu.has_fast_bf16()


def make_deterministic() -> None:
    """Deterministic kernels only, wherever there are any. To be called before anything is computed on the GPU.

    The variables are those of cuBLAS and FlashAttention for reproducible results.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
